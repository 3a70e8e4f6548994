import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { RequestPreparation } from "../../../../actors/model/request-preparation.ts";
import type { GrammarHost, Matcher } from "../../../../engines/decoding/grammar/matcher.ts";
import type { PrefixStore } from "../../../../engines/decoding/prefix-store/prefix-store.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createRun, createServer, crossed, job, readAll } from "../generation/rig.ts";
import { createLoop, expected, gone, tokensOf, vocabSize, watch } from "./adapters-rig.ts";

describe("adapters of jobs that are being prepared", () => {
  const grammar = { kind: "json_schema", schema: {} } as const;

  function preparing(store: PrefixStore | null = null) {
    const rig = createLoop({ prefixCacheEntries: 4, engine: { sequenceTokens: 512, maxBatchTokens: 512 } });
    const ends = { compile: () => {}, fail: (_error: Error) => {} };
    const matcher: Matcher = {
      param: undefined,
      isReady: true,
      wait: () => true,
      allowed: () => ({ forced: new Int32Array(0), mask: new Int32Array(vocabSize / 32).fill(-1) }),
      accept: () => {},
      close: () => {},
    };
    const grammars: GrammarHost = {
      compile: () =>
        new Promise((resolve, reject) => {
          ends.compile = () => resolve({ open: () => matcher });
          ends.fail = reject;
        }),
      dispose: async () => {},
    };
    const intake = new RequestPreparation({ loop: rig.loop, grammars, store });
    return { ...rig, intake, compile: () => ends.compile(), fail: (error: Error) => ends.fail(error) };
  }

  it("are in use until they are cancelled, dropped, or refused", async () => {
    for (const how of ["cancel", "drop", "refuse"]) {
      const { loop, load, intake, fail, frames } = preparing();
      await load(1);
      const jobs = [job(1, { adapter: 1, grammar: grammar as never }), job(2, { adapter: 1 })];
      const submitted = Promise.resolve(intake.submit(frames, jobs)).catch(() => {});
      const left = watch(loop.adapters.unload(1));
      await settled();
      assert.ok(!left.settled, how);
      if (how === "cancel") intake.cancel(frames, [1]);
      if (how === "cancel") intake.cancel(frames, [2]);
      if (how === "drop") intake.drop(frames);
      if (how === "refuse") fail(new ServerError("invalid_value", "no grammar"));
      await settled();
      assert.ok(left.settled, how);
      fail(new Error("nobody waits for it"));
      await submitted;
    }
  });

  it("stay usable by those jobs, though they are unloaded meanwhile", async () => {
    const { loop, load, intake, compile, frames, host } = preparing();
    await load(1);
    const prompt = Int32Array.of(1, 2, 3);
    const submitted = intake.submit(frames, [job(1, { adapter: 1, prompt, grammar: grammar as never })]);
    const unloaded = loop.adapters.unload(1);
    compile();
    await submitted;
    loop.step();
    assert.ok(host.loaded.has(1));
    while (loop.step());
    assert.deepEqual(tokensOf(frames, 1), expected(prompt, 4, 1));
    await unloaded;
    assert.ok(!host.loaded.has(1));
  });

  it("are refused with all jobs if one of them is gone", async () => {
    const { loop, load, intake, frames } = preparing();
    await load(1);
    const jobs = [job(1, { adapter: 1, grammar: grammar as never }), job(2, { adapter: 2 })];
    await assert.rejects(Promise.resolve(intake.submit(frames, jobs)), gone);
    await loop.adapters.unload(1);
  });

  it("read only prefixes of their own revision from disk, and none once the job is cancelled", async () => {
    const prompt = Int32Array.from({ length: 300 }, (_, i) => i % 60);
    const asked: string[] = [];
    let read = () => {};
    const content = { adapter: "generation 1", tokens: prompt, bytes: new Uint8Array(prompt.slice().buffer) };
    const tagged = { ...content, bytes: new Uint8Array(prompt.map((token) => token + 65536).buffer) };
    const store = {
      find: (generation: string) => {
        asked.push(generation);
        return generation === "generation 1" ? { name: "file", tokens: 300, usable: 300, bytes: 1 } : null;
      },
      read: () => new Promise((resolve) => (read = () => resolve(tagged))),
    } as unknown as PrefixStore;
    const { loop, load, intake, frames, engine } = preparing(store);
    for (const id of [1, 2]) await load(id);
    await intake.submit(frames, [job(1, { prompt }), job(2, { prompt, adapter: 2 })]);
    assert.deepEqual(asked, ["", "generation 2"]);
    const cancelled = intake.submit(frames, [job(3, { prompt, adapter: 1 })]);
    await settled();
    intake.cancel(frames, [3]);
    read();
    await cancelled;
    assert.equal(engine.kv.copyCount, 0);
    const submitted = intake.submit(frames, [job(4, { prompt, adapter: 1 })]);
    await settled();
    read();
    await submitted;
    assert.equal(engine.kv.copyCount, 1);
    while (loop.step());
    assert.deepEqual(tokensOf(frames, 4), expected(prompt, 4, 1));
    assert.equal(loop.snapshot().prefixCache.reusedTokens, 299);
  });

  it("are not freed if the engine is disposed meanwhile", async () => {
    const { loop, load, intake, fail, frames, host } = preparing();
    await load(1);
    const submitted = intake.submit(frames, [job(1, { adapter: 1, grammar: grammar as never })]);
    const unloaded = loop.adapters.unload(1);
    await settled();
    loop.stop();
    loop.dispose();
    fail(new ServerError("model_failed", "the grammars are gone"));
    await assert.rejects(Promise.resolve(submitted));
    await unloaded;
    assert.deepEqual(host.log, ["load 1"]);
  });
});

describe("the adapter of a generation", () => {
  async function beginOf(t: TestContext, generation: string | null) {
    const rig = await createRun({}, { adapter: { id: 3, generation } });
    t.after(rig.close);
    void rig.start();
    await crossed();
    assert.deepEqual(
      rig.asked.map(({ adapter }) => adapter),
      [3],
    );
    rig.sinks[0]!.onToken(5, 1 | 4, 10, null, 0);
    const [begin] = await readAll(rig.reader);
    assert.ok(begin?.type === "begin");
    return begin;
  }

  it("reaches the model, and its revision comes with the first token", async (t) => {
    assert.equal((await beginOf(t, "abc")).adapterGeneration, "abc");
  });

  it("has no revision if it is the base model", async (t) => {
    assert.ok(!("adapterGeneration" in (await beginOf(t, null))));
  });

  it("reaches the engine from the generation actor, for texts and embeddings", async (t) => {
    const server = await createServer({ engine: { adaptersPerStep: 1, maxSequences: 2 } });
    t.after(server.close);
    const model = { id: 7, generation: "g", path: "7.gguf" };
    await server.modelRef.ask("loadAdapter", model);
    const adapters: number[] = [];
    const check = server.engine.adapters!.check.bind(server.engine.adapters);
    server.engine.adapters!.check = (batch) => {
      adapters.push(...batch.adapter.subarray(0, batch.rowCount));
      check(batch);
    };
    const events = await readAll(server.start({}, { id: 7, generation: "g" }));
    assert.equal(events.at(-1)?.type, "done");
    assert.ok(events.some((event) => event.type === "begin" && event.adapterGeneration === "g"));
    const { vectors } = await server.embed(["a"], "tiny", { id: 7, generation: "g" }).embedded;
    assert.equal(vectors.length, 1);
    assert.deepEqual([...new Set(adapters)], [7]);
    await server.modelRef.ask("unloadAdapter", { id: 7 });
    const [refused] = await readAll(server.start({}, { id: 7, generation: "g" }));
    assert.ok(refused?.type === "error" && refused.error.code === "model_failed");
  });
});
