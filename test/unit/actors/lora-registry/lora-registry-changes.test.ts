// Adapter changes of a model: during requests, during a load, and when the model's place (worker thread or process) ends.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { AdapterLease } from "../../../../actors/lora-registry/model-adapters.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createAdapters, generationOf, type Rig, rest, withCode } from "./lora-registry-rig.ts";

describe("replacing and unloading", () => {
  it("leaves requests on the version they began with", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    const first = rig.adapters.lease({ alias: "style" });
    const other = rig.adapters.lease({ alias: "style" });
    await rig.load("style", "/b", { replace: true, expectedGeneration: generationOf("/a") });
    const second = rig.adapters.lease({ alias: "style" });
    assert.equal(first.adapter.generation, generationOf("/a"));
    assert.equal(second.adapter.generation, generationOf("/b"));
    assert.notEqual(first.adapter.id, second.adapter.id);
    const retired = rig.adapters.list().generations.find(({ generation }) => generation === generationOf("/a"));
    assert.deepEqual([retired?.retired, retired?.activeLeases, retired?.aliases], [true, 2, []]);
    assert.throws(() => rig.adapters.lease({ generation: generationOf("/a") }), withCode("invalid_value", "adapter"));
    first.release();
    await rest();
    assert.equal(rig.held().length, 2);
    other.release();
    await rest();
    assert.deepEqual(rig.held(), [generationOf("/b")]);
    await rig.filesAre(1);
    const messages = rig.log.lines.map((line) => line.message);
    assert.deepEqual(messages, ["adapter loaded", "adapter replaced"]);
  });

  it("returns the adapter that the alias named", async (context) => {
    const rig = await createAdapters(context);
    const loaded = await rig.load("style", "/a");
    assert.deepEqual(await rig.unload("style", loaded.generation), loaded);
    assert.deepEqual(rig.adapters.entries(), []);
  });

  it("requires the alias, and the expected version", async (context) => {
    const rig = await createAdapters(context);
    const other = generationOf("/other");
    await assert.rejects(rig.unload("style"), withCode("lora_adapter_not_found", "lora_name", /none is loaded/));
    const absent = rig.load("style", "/a", { replace: true, expectedGeneration: other });
    await assert.rejects(absent, withCode("lora_adapter_not_found"));
    await rig.load("style", "/a", { replace: true });
    await assert.rejects(rig.unload("style", other), withCode("lora_generation_mismatch", "expected_generation"));
    await assert.rejects(rig.unload("style", "x"), withCode("invalid_value", "expected_generation"));
    await assert.rejects(rig.unload(""), withCode("invalid_lora_name"));
    const stale = rig.load("style", "/b", { replace: true, expectedGeneration: other });
    await assert.rejects(stale, withCode("lora_generation_mismatch"));
    assert.equal(rig.preparing.length, 1);
    assert.deepEqual(rig.held(), [generationOf("/a")]);
  });

  it("makes a retired version live again when its content is loaded again", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    const lease = rig.adapters.lease({ alias: "style" });
    await rig.unload("style");
    await rig.load("again", "/a");
    assert.deepEqual(rig.model.asked, ["loadAdapter 1"]);
    lease.release();
    await rest();
    assert.deepEqual(rig.held(), [generationOf("/a")]);
    assert.equal(rig.adapters.lease({ alias: "again" }).adapter.id, lease.adapter.id);
  });

  it("frees first, then loads under a new id, if the content comes back meanwhile", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    rig.outside.isManual = true;
    await rig.unload("style");
    const loading = rig.load("style", "/a");
    await rest();
    await rig.outside.settle(/prepare/);
    assert.deepEqual(rig.model.asked, ["loadAdapter 1", "unloadAdapter 1"]);
    await rig.outside.settle(/unloadAdapter 1/);
    await rig.outside.settle(/loadAdapter 2/);
    await loading;
    assert.deepEqual([...rig.model.held.keys()], [2]);
    await rig.filesAre(1);
  });

  it("frees first, too, a version that became unneeded while the load waited", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    await rig.load("other", "/b");
    rig.outside.isManual = true;
    const restarted = rig.restart();
    const loading = rig.load("new", "/c");
    await rig.outside.settle(/prepare/);
    await rig.outside.settle(/loadAdapter 1/);
    await rig.unload("style");
    await rig.outside.settle(/loadAdapter 2/);
    await restarted;
    await rig.outside.settle(/unloadAdapter 1/);
    await rig.outside.settle(/loadAdapter 3/);
    await loading;
    assert.deepEqual(rig.model.asked, ["loadAdapter 1", "loadAdapter 2", "unloadAdapter 1", "loadAdapter 3"]);
  });

  it("logs an adapter that the engine did not free", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    rig.outside.isManual = true;
    await rig.unload("style");
    await rest();
    await rig.outside.settle(/unloadAdapter/, new ServerError("internal", "stuck"));
    assert.equal(rig.log.lines.at(-1)?.level, "error");
  });

  it("accepts that the engine ends instead of freeing it", async (context) => {
    for (const code of ["peer_gone", "draining"] as const) {
      const rig = await createAdapters(context);
      await rig.load("style", "/a");
      rig.outside.isManual = true;
      await rig.unload("style");
      await rig.outside.settle(/unloadAdapter/, new ServerError(code, "ending"));
      await rig.filesAre(0);
      assert.deepEqual(
        rig.log.lines.map(({ level }) => level),
        ["info", "info"],
      );
    }
  });

  it("retries while the mailbox of the model is full", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    rig.outside.isManual = true;
    await rig.unload("style");
    await rest();
    rig.outside.isManual = false;
    await rig.outside.settle(/unloadAdapter/, new ServerError("mailbox_full", "busy"));
    await rig.load("next", "/b");
    assert.deepEqual(rig.held(), [generationOf("/b")]);
  });

  it("works while the model is not loaded", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    await rig.load("other", "/b");
    rig.model.die();
    await rig.unload("style");
    await rest();
    assert.equal(rig.log.lines.filter(({ level }) => level === "error").length, 0);
    await rig.restart();
    assert.deepEqual(rig.held(), [generationOf("/b")]);
    await rig.filesAre(1);
  });

  it("frees an adapter that the engine loads after the timeout", async (context) => {
    const rig = await createAdapters(context);
    rig.outside.isManual = true;
    const refused = assert.rejects(rig.load("style", "/a"), withCode("lora_device_load_failed"));
    await rig.outside.settle(/prepare/);
    await rig.outside.settle(/loadAdapter 1/, new ServerError("timeout", "late"));
    await refused;
    await rig.outside.settle(/unloadAdapter 1/);
    assert.equal(rig.log.lines.filter(({ level }) => level === "error").length, 0);
    rig.outside.isManual = false;
    await rig.load("style", "/a");
    assert.deepEqual([...rig.model.held.keys()], [2]);
  });
});

describe("a model that is loaded again", () => {
  /** Restarts a model with two adapters. The first adapter can no longer be loaded. */
  async function restartWithout(context: TestContext, error: ServerError, change: (rig: Rig) => void = () => {}) {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    await rig.load("same", "/a");
    await rig.load("other", "/b");
    change(rig);
    rig.outside.isManual = true;
    const outcome = rig.restart().then(
      () => "up",
      (thrown: ServerError) => thrown.code,
    );
    await rig.outside.settle(/loadAdapter 1/, error);
    rig.outside.isManual = false;
    await rest();
    for (const pending of [...rig.outside.pending]) pending.settle();
    return { rig, outcome: await outcome };
  }

  it("continues without an adapter that it cannot load, and refuses requests for it", async (context) => {
    const error = new ServerError("lora_device_load_failed", "its file is gone");
    const { rig, outcome } = await restartWithout(context, error, ({ adapters }) =>
      assert.equal(adapters.entries().length, 3),
    );
    assert.equal(outcome, "up");
    assert.deepEqual(rig.held(), [generationOf("/b")]);
    for (const selector of [{ alias: "style" }, { alias: "same" }, { generation: generationOf("/a") }]) {
      assert.throws(() => rig.adapters.lease(selector), withCode("invalid_value", "adapter", /it has "other"$/));
    }
    assert.deepEqual(
      rig.adapters.entries().map(({ alias }) => alias),
      ["other"],
    );
    const { level, fields } = rig.log.lines.at(-1) ?? {};
    assert.deepEqual([level, fields?.aliases, fields?.err], ["error", ["style", "same"], error]);
    await rig.filesAre(1);
    await rig.load("style", "/a");
    assert.deepEqual([...rig.model.held.keys()], [2, 3], "loaded again, under a new id");
  });

  it("ignores leases on a lost version, apart from leases on the same content loaded again", async (context) => {
    const leases: AdapterLease[] = [];
    const error = new ServerError("timeout", "late");
    const { rig } = await restartWithout(context, error, ({ adapters }) =>
      leases.push(adapters.lease({ alias: "style" })),
    );
    assert.equal(rig.adapters.list().residentBytes, 100);
    await rig.load("style", "/a");
    leases[0]?.release();
    await rest();
    assert.equal(rig.held().length, 2);
    rig.adapters.lease({ alias: "style" }).release();
  });

  for (const code of ["peer_gone", "draining"] as const) {
    it(`keeps its adapters if its place ends meanwhile with ${code}`, async (context) => {
      const { rig, outcome } = await restartWithout(context, new ServerError(code, "ending"));
      assert.equal(outcome, code);
      await rig.restart();
      assert.deepEqual(rig.held(), [generationOf("/a"), generationOf("/b")].sort());
    });
  }

  it("keeps them if its place is being stopped, whatever its errors", async (context) => {
    const error = new ServerError("lora_device_load_failed", "the model was unloaded");
    const end = (rig: Rig) => {
      rig.isEnding = true;
    };
    const { rig, outcome } = await restartWithout(context, error, end);
    assert.equal(outcome, "lora_device_load_failed");
    await rig.restart();
    assert.equal(rig.held().length, 2);
  });

  it("does not start if an adapter of the settings cannot be loaded at the start of the server", async (context) => {
    const preloaded = [{ alias: "a", source: "/a", revision: null, path: "/a" }];
    const rig = await createAdapters(context, { preloaded });
    await rig.adapters.preload();
    rig.outside.isManual = true;
    const attached = rig.adapters.attach(rig.model, () => false);
    const refused = assert.rejects(
      attached,
      withCode("lora_device_load_failed", undefined, /^lora "a" of model "tiny": no/),
    );
    await rig.outside.settle(/loadAdapter/, new ServerError("lora_device_load_failed", "no room"));
    await refused;
  });
});

describe("concurrent operations", () => {
  it("an unload during the preparation of a replacement makes its condition fail", async (context) => {
    const rig = await createAdapters(context);
    const { generation } = await rig.load("style", "/a");
    rig.outside.isManual = true;
    const refused = assert.rejects(
      rig.load("style", "/b", { replace: true, expectedGeneration: generation }),
      withCode("lora_adapter_not_found"),
    );
    await rig.unload("style");
    await rest();
    await rig.outside.settle(/unloadAdapter/);
    await rig.outside.settle(/prepare/);
    await refused;
    assert.deepEqual(rig.held(), []);
    await rig.filesAre(0);
  });

  it("an unload while the engine loads makes it fail too, and frees the new version", async (context) => {
    const rig = await createAdapters(context);
    const { generation } = await rig.load("style", "/a");
    rig.outside.isManual = true;
    const refused = assert.rejects(
      rig.load("style", "/b", { replace: true, expectedGeneration: generation }),
      withCode("lora_adapter_not_found"),
    );
    await rig.outside.settle(/prepare/);
    await rig.unload("style");
    await rig.outside.settle(/loadAdapter 2/);
    await rig.outside.settle(/unloadAdapter 2/);
    await rig.outside.settle(/unloadAdapter 1/);
    await refused;
    await rest();
    assert.deepEqual(rig.held(), []);
    await rig.filesAre(0);
  });

  it("without a condition the load creates the alias again", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    rig.outside.isManual = true;
    const loading = rig.load("style", "/b", { replace: true });
    await rig.outside.settle(/prepare/);
    await rig.unload("style");
    await rig.outside.settle(/loadAdapter 2/);
    await rig.outside.settle(/unloadAdapter 1/);
    await loading;
    assert.deepEqual(rig.held(), [generationOf("/b")]);
  });

  it("the last lease of the same content ends during preparation: it is loaded again", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("style", "/a");
    const lease = rig.adapters.lease({ alias: "style" });
    await rig.unload("style");
    rig.outside.isManual = true;
    const loading = rig.load("style", "/a");
    lease.release();
    await rig.outside.settle(/prepare/);
    await rig.outside.settle(/unloadAdapter 1/);
    await rig.outside.settle(/loadAdapter 2/);
    await loading;
    assert.deepEqual(rig.adapters.lease({ alias: "style" }).adapter, { id: 2, generation: generationOf("/a") });
  });
});

describe("a model's place that is restarted", () => {
  it("gets all live and leased versions, under their old ids", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    await rig.load("b", "/b");
    await rig.load("c", "/c");
    const waiting = rig.adapters.lease({ alias: "c" });
    await rig.unload("a");
    await rig.unload("c");
    await rig.restart();
    assert.deepEqual(rig.model.asked, ["loadAdapter 2", "loadAdapter 3"]);
    assert.equal(waiting.adapter.id, 3, "its request may have waited for this start");
    waiting.release();
    await rest();
    assert.deepEqual(rig.held(), [generationOf("/b")]);
  });

  it("gets versions that are prepared meanwhile, but none that are freed meanwhile", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    await rig.load("b", "/b");
    rig.outside.isManual = true;
    const loading = rig.load("c", "/c");
    const restarted = rig.restart();
    await rest();
    await rig.outside.settle(/prepare/);
    await rig.unload("b");
    await rig.outside.settle(/loadAdapter 1/);
    await restarted;
    await rig.outside.settle(/loadAdapter 3/);
    await loading;
    assert.deepEqual(rig.model.asked, ["loadAdapter 1", "loadAdapter 3"]);
    assert.deepEqual(rig.held(), [generationOf("/a"), generationOf("/c")].sort());
  });

  it("fails a load that was in progress, and gets the versions from before it", async (context) => {
    const rig = await createAdapters(context);
    await rig.load("a", "/a");
    rig.outside.isManual = true;
    const refused = assert.rejects(rig.load("b", "/b"), withCode("lora_device_load_failed"));
    await rig.outside.settle(/prepare/);
    const restarted = rig.restart();
    await refused;
    rig.outside.isManual = false;
    await rig.outside.settle(/loadAdapter 1/);
    await restarted;
    assert.deepEqual(rig.held(), [generationOf("/a")]);
  });
});
