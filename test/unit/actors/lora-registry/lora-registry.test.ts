// LoRA registry of a model: loading adapters, rejections and their effects, settings, and the shutdown of the server.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AdapterLoadLock } from "../../../../actors/lora-registry/adapter-load-lock.ts";
import { LoraRegistry } from "../../../../actors/lora-registry/lora-registry.ts";
import type { ModelAdapters } from "../../../../actors/lora-registry/model-adapters.ts";
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { createAdapters, eventually, FakeModel, generationOf, rest, withCode } from "./lora-registry-rig.ts";

describe("loading an adapter", () => {
  it("points the alias to a version, which the engine holds and requests can choose", async (context) => {
    const rig = await createAdapters(context);
    const loaded = await rig.load("  style ", "/a?rank=4&bytes=70");
    const generation = generationOf("/a?rank=4&bytes=70");
    const expected = { alias: "style", source: "/a?rank=4&bytes=70", revision: null, generation, rank: 4, bytes: 70 };
    assert.deepEqual(loaded, expected);
    assert.deepEqual(rig.held(), [generation]);
    const byAlias = rig.adapters.lease({ alias: "style" });
    const byGeneration = rig.adapters.lease({ generation });
    assert.deepEqual(byAlias.adapter, byGeneration.adapter);
    assert.equal(byAlias.adapter.generation, generation);
    assert.deepEqual(rig.adapters.list(), {
      adapters: [expected],
      generations: [{ generation, aliases: ["style"], rank: 4, bytes: 70, retired: false, activeLeases: 2 }],
      residentBytes: 70,
      maxAdapters: 16,
      maxRank: 256,
      maxBytes: 1_000_000,
    });
    const [entry] = rig.adapters.entries();
    assert.equal(entry?.alias, "style");
    assert.ok(Math.abs(Date.now() / 1000 - (entry?.createdAt ?? 0)) < 10);
    const [line] = rig.log.lines;
    assert.deepEqual([line?.level, line?.message, line?.fields.alias], ["info", "adapter loaded", "style"]);
  });

  it("prepares with the limits, under the root", async (context) => {
    const rig = await createAdapters(context, { root: "/allowed", limits: { maxRank: 9, maxBytes: 1000 } });
    await rig.load("style", "/a");
    const [options] = rig.preparing;
    assert.equal(options?.root, "/allowed");
    assert.equal(options?.modelPath, "/models/tiny.gguf");
    assert.deepEqual(options?.limits, { maxRank: 9, maxBytes: 1000 });
  });

  const turned = "\u202etset";
  const hidden = "te\u200bst";
  const names = ["", " \n ", "a".repeat(257), "ä".repeat(129), "two\nlines", "bell\u0007", "\ud800", turned, hidden];
  for (const name of names) {
    it(`refuses the name ${JSON.stringify(name).slice(0, 12)}`, async (context) => {
      const rig = await createAdapters(context);
      await assert.rejects(rig.load(name, "/a"), withCode("invalid_lora_name", "lora_name"));
      assert.equal(rig.preparing.length, 0);
    });
  }

  it("accepts the longest name", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("ä".repeat(128), "/a");
    assert.equal(rig.adapters.entries().length, 1);
  });

  it("refuses expected_generation without replacement, and one that is no hash", async (context) => {
    const rig = await createAdapters(context);
    const generation = generationOf("/a");
    const policy = rig.load("style", "/a", { expectedGeneration: generation });
    await assert.rejects(policy, withCode("invalid_lora_load_policy", "expected_generation"));
    for (const expectedGeneration of ["", "abc", generation.toUpperCase(), `${generation}0`]) {
      const load = rig.load("style", "/a", { replace: true, expectedGeneration });
      await assert.rejects(load, withCode("invalid_value", "expected_generation"));
    }
  });

  it("refuses an alias that exists, and does not change it", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    await assert.rejects(rig.load("style", "/b"), withCode("lora_adapter_already_loaded", "lora_name", /load_inplace/));
    assert.deepEqual(rig.held(), [generationOf("/a")]);
    assert.equal(rig.preparing.length, 1, "refused before any file is read");
  });

  it("recognises the same content by its hash, and keeps it once", async (context) => {
    const rig = await createAdapters(context);
    const first = await rig.load("style", "/a#one");
    const second = await rig.load("copy", "/a#two");
    assert.equal(first.generation, second.generation);
    assert.equal(second.source, "/a#two");
    assert.deepEqual(rig.model.asked, ["loadAdapter 1"]);
    await rig.filesAre(1);
    await rig.unload("style");
    await rest();
    assert.deepEqual(rig.held(), [first.generation], "the other alias still points to it");
    await rig.unload("copy");
    await rest();
    assert.deepEqual(rig.held(), []);
    await rig.filesAre(0);
  });

  it("is done one at a time on the whole server", async (context) => {
    const gate = new AdapterLoadLock();
    const one = await createAdapters(context, { gate });
    const other = await createAdapters(context, { gate });
    one.outside.isManual = true;
    const loading = one.load("style", "/a");
    for (const rig of [one, other]) {
      await assert.rejects(rig.load("b", "/b"), (error) => {
        assert.ok(error instanceof ServerError && error.retryAfterSeconds === 1 && error.retryable);
        return withCode("lora_load_busy")(error);
      });
    }
    await one.outside.settle(/prepare/);
    await assert.rejects(other.load("b", "/b"), withCode("lora_load_busy"));
    await one.outside.settle(/loadAdapter/);
    await loading;
    await other.load("b", "/b");
    one.outside.isManual = false;
    await assert.rejects(one.load("style", "/c"), withCode("lora_adapter_already_loaded"));
    one.unavailable = new ServerError("model_state_conflict", "not loaded");
    await assert.rejects(one.load("c", "/c"), withCode("model_state_conflict"));
    await other.load("d", "/d");
  });

  it("requires a loaded model", async (context) => {
    const rig = await createAdapters(context);
    rig.unavailable = new ServerError("model_state_conflict", "not loaded");
    await assert.rejects(rig.load("style", "/a"), withCode("model_state_conflict"));
    assert.equal(rig.preparing.length, 0);
  });

  it("passes on errors of the files", async (context) => {
    const rig = await createAdapters(context);
    const codes: readonly ErrorCode[] = ["adapter_path_not_found", "invalid_lora_adapter", "lora_rank_limit_exceeded"];
    rig.outside.isManual = true;
    for (const code of codes) {
      const refused = assert.rejects(rig.load("style", "/a"), withCode(code));
      await rig.outside.settle(/prepare/, new ServerError(code, "wrong"));
      await refused;
    }
    assert.deepEqual(rig.adapters.list().generations, []);
    await rig.filesAre(0);
  });

  it("reports a fault of the model's file, but not its path", async (context) => {
    const rig = await createAdapters(context);
    rig.outside.isManual = true;
    const told = (error: unknown) =>
      withCode("invalid_lora_runtime", undefined, /the model's own file/)(error) && !String(error).includes("/models");
    const refused = assert.rejects(rig.load("style", "/a"), told);
    await rig.outside.settle(/prepare/, new ServerError("model_file_invalid", '"/models/tiny.gguf" is cut off'));
    await refused;
    assert.match(String(rig.log.lines.at(-1)?.fields.reason), /cut off/);
  });

  for (const error of [new Error("a bug"), new ServerError("timeout", "late"), new ServerError("peer_gone", "died")]) {
    it(`logs an internal failure of the preparation ("${error.message}"), and refers to the log`, async (context) => {
      const rig = await createAdapters(context);
      rig.outside.isManual = true;
      const refused = assert.rejects(rig.load("style", "/a"), withCode("lora_load_task_failed"));
      await rig.outside.settle(/prepare/, error);
      await refused;
      const [line] = rig.log.lines;
      assert.deepEqual([line?.level, line?.fields.err], ["error", error]);
      await rig.filesAre(0);
    });
  }

  const refusals: readonly (readonly [Error, ErrorCode])[] = [
    [new ServerError("lora_device_load_failed", "no room"), "lora_device_load_failed"],
    [new ServerError("unsupported", "takes none"), "unsupported"],
    [new ServerError("mailbox_full", "busy"), "mailbox_full"],
    [new ServerError("peer_gone", "died"), "lora_device_load_failed"],
    [new ServerError("timeout", "late"), "lora_device_load_failed"],
    [new ServerError("internal", "a bug"), "lora_load_task_failed"],
  ];
  for (const [error, code] of refusals) {
    it(`changes nothing when the engine refuses with "${error.message}"`, async (context) => {
      const rig = await createAdapters(context);
      await rig.load("style", "/a");
      const before = rig.adapters.list();
      rig.outside.isManual = true;
      const refused = assert.rejects(rig.load("style", "/b", { replace: true }), withCode(code));
      await rig.outside.settle(/prepare/);
      await rig.outside.settle(/loadAdapter 2/, error);
      await refused;
      assert.deepEqual(rig.adapters.list(), before);
      await rig.filesAre(1);
      assert.deepEqual(rig.held(), [generationOf("/a")]);
    });
  }

  it("continues when the client leaves, and its failure has no effect", async (context) => {
    const rig = await createAdapters(context);
    const registry = new LoraRegistry(new Map([["tiny", rig]]));
    rig.outside.isManual = true;
    const request = { model: "tiny", alias: "style", path: "/a", replace: false, expectedGeneration: null };
    void registry.load(request);
    await rig.outside.settle(/prepare/, new ServerError("invalid_lora_adapter", "bad"));
    await eventually(() => assert.equal(rig.log.lines.at(-1)?.level, "warn"));
    await rest();
    void registry.load(request);
    await rig.outside.settle(/prepare/);
    await rig.outside.settle(/loadAdapter/);
    await eventually(() => assert.equal(registry.list("tiny").adapters.length, 1));
  });
});

describe("the limits", () => {
  it("count the versions that have aliases", async (context) => {
    const rig = await createAdapters(context, { limits: { maxAdapters: 2 } });
    await rig.load("a", "/a");
    await rig.load("b", "/b");
    await assert.rejects(rig.load("c", "/c"), withCode("lora_adapter_limit_exceeded", undefined, /2 of at most 2/));
    await rig.load("another-a", "/a");
    await rig.load("b", "/c", { replace: true });
    const shared = rig.load("a", "/d", { replace: true });
    await assert.rejects(
      shared,
      withCode("lora_adapter_limit_exceeded"),
      "the other alias keeps what it would replace",
    );
    await rig.unload("another-a");
    await rig.load("a", "/d", { replace: true });
    assert.deepEqual(rig.held(), [generationOf("/c"), generationOf("/d")].sort());
    await rig.filesAre(2);
  });

  it("let requests keep a retired version, and count its bytes, but not the adapter", async (context) => {
    const rig = await createAdapters(context, { limits: { maxAdapters: 1, maxBytes: 250 } });
    await rig.load("a", "/a");
    const lease = rig.adapters.lease({ alias: "a" });
    await rig.unload("a");
    await rig.load("b", "/b");
    assert.equal(rig.adapters.list().residentBytes, 200);
    await rig.unload("b");
    await assert.rejects(rig.load("c", "/c?bytes=151"), withCode("lora_byte_limit_exceeded"));
    lease.release();
    await rig.load("c", "/c?bytes=250");
    assert.equal(rig.adapters.list().residentBytes, 250);
  });

  it("let another alias point to a version in memory when no byte is left", async (context) => {
    const rig = await createAdapters(context, { limits: { maxBytes: 100 } });
    const { generation } = await rig.load("a", "/a");
    assert.equal((await rig.load("b", "/a#again")).generation, generation);
    await assert.rejects(rig.load("c", "/c?bytes=1"), withCode("lora_byte_limit_exceeded"));
  });

  it("limit the number of aliases", async (context) => {
    const rig = await createAdapters(context);
    for (let count = 0; count < 1024; count++) await rig.load(`alias ${count}`, "/a");
    await assert.rejects(rig.load("one more", "/a"), withCode("lora_alias_limit_exceeded"));
    await rig.load("alias 7", "/b", { replace: true });
    assert.throws(
      () => rig.adapters.lease({ alias: "none" }),
      (error) => withCode("invalid_value", "adapter", /1008 more/)(error) && (error as Error).message.length < 500,
    );
  });
});

describe("adapters of the settings", () => {
  const preloaded = [
    { alias: "a", source: "org/a", revision: "main", path: "/cache/a" },
    { alias: "b", source: "./b", revision: null, path: "/b" },
  ];

  it("are prepared before the place is up, outside the root too, and loaded when it is up", async (context) => {
    const rig = await createAdapters(context, { preloaded, root: "/elsewhere" });
    await rig.adapters.preload();
    assert.deepEqual(
      rig.preparing.map(({ source, root }) => [source, root]),
      [
        ["/cache/a", null],
        ["/b", null],
      ],
    );
    assert.deepEqual(rig.model.asked, []);
    const said = rig.log.lines.map(({ message }) => message);
    assert.deepEqual(said, ["adapter prepared", "adapter prepared"]);
    await rig.adapters.attach(rig.model, () => false);
    assert.deepEqual(rig.held(), [generationOf("/b"), generationOf("/cache/a")].sort());
    const { adapters } = rig.adapters.list();
    assert.deepEqual(
      adapters.map(({ alias, source, revision }) => ({ alias, source, revision })),
      [
        { alias: "a", source: "org/a", revision: "main" },
        { alias: "b", source: "./b", revision: null },
      ],
    );
  });

  it("are named in the error if they are invalid or too many", async (context) => {
    const one = await createAdapters(context, { preloaded, limits: { maxAdapters: 1 } });
    await assert.rejects(
      one.adapters.preload(),
      withCode("lora_adapter_limit_exceeded", undefined, /^lora "b" of model "tiny": model/),
    );
    await one.filesAre(1);
    const two = await createAdapters(context, { preloaded });
    two.prepare = () => Promise.reject(new ServerError("adapter_path_not_found", "there is nothing at /cache/a"));
    await assert.rejects(two.adapters.preload(), withCode("adapter_path_not_found", undefined, /"a".*\/cache\/a/));
  });
});

describe("a lease", () => {
  it("is refused for an unknown adapter, with the known ones", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    await rig.load("b", "/b");
    for (const selector of [{ alias: "c" }, { alias: "A" }, { generation: generationOf("/c") }, { generation: "a" }]) {
      assert.throws(() => rig.adapters.lease(selector), withCode("invalid_value", "adapter", /it has "a", "b"/));
    }
  });

  it("can be released once only", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    const lease = rig.adapters.lease({ alias: "a" });
    lease.release();
    assert.throws(() => lease.release(), /released twice/);
  });
});

describe("the end of the server", () => {
  it("cancels the preparation in progress and removes all files", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    rig.outside.isManual = true;
    const refused = assert.rejects(rig.load("b", "/b"), withCode("draining"));
    await rig.adapters.close();
    await refused;
    await rig.filesAre(0);
    await assert.rejects(rig.load("c", "/c"), withCode("draining"));
  });

  it("refuses an adapter that the engine is loading", async (context) => {
    const rig = await createAdapters(context);
    rig.outside.isManual = true;
    const refused = assert.rejects(rig.load("b", "/b"), withCode("draining"));
    await rig.outside.settle(/prepare/);
    await rig.adapters.close();
    rig.outside.isManual = false;
    await rig.outside.settle(/loadAdapter/);
    await refused;
    await rig.filesAre(0);
    assert.deepEqual(rig.held(), []);
  });
});

describe("the registry of all models", () => {
  it("finds the adapters of a model, or throws why there are none", async (context) => {
    const rig = await createAdapters(context);
    const registry = new LoraRegistry(
      new Map<string, { readonly adapters: ModelAdapters | null }>([
        ["tiny", rig],
        ["plain", { adapters: null }],
      ]),
    );
    const load = (model: string) =>
      registry.load({ model, alias: "a", path: "/a", replace: false, expectedGeneration: null });
    const unload = (model: string) => registry.unload({ model, alias: "a", expectedGeneration: null });
    await load("tiny");
    assert.equal(registry.list("tiny").adapters.length, 1);
    await unload("tiny");
    await assert.rejects(load("plain"), withCode("lora_runtime_unavailable", "model", /enable_lora/));
    await assert.rejects(unload("plain"), withCode("lora_runtime_unavailable"));
    assert.throws(() => registry.list("plain"), withCode("lora_runtime_unavailable"));
    await assert.rejects(load("none"), withCode("model_not_found", "model", /tiny, plain/));
    assert.throws(() => registry.list("none"), withCode("model_not_found"));
  });

  it("accepts loads before the first place is attached", async (context) => {
    const rig = await createAdapters(context, { preloaded: [] });
    await rig.load("a", "/a");
    assert.deepEqual(rig.model.asked, []);
    const model = new FakeModel(rig.outside);
    await rig.adapters.attach(model, () => false);
    assert.deepEqual([...model.held.values()], [generationOf("/a")]);
  });
});
