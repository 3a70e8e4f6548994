import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { PoolJob } from "../../../actors/messages.ts";
import { Intake } from "../../../actors/scheduler/intake.ts";
import { StepLoop } from "../../../actors/scheduler/step-loop.ts";
import type { GrammarHost, Matcher } from "../../../engines/grammar/matcher.ts";
import type { PrefixStore } from "../../../engines/prefix-store/prefix-store.ts";
import { Speculation } from "../../../engines/speculation/speculation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { settled } from "../../fixtures/fake-clock.ts";
import { createFakeEngine, type FakeEngineOptions, fakeNextToken } from "../../fixtures/fake-engine.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { createRun, createServer, crossed, Frames, job, readAll } from "./rig.ts";

const vocabSize = 64;

function createLoop(options: { engine?: FakeEngineOptions; prefixCacheEntries?: number; drafts?: boolean } = {}) {
  const { prefixCacheEntries = 0, drafts = false } = options;
  const engine = createFakeEngine({ vocabSize, adaptersPerStep: 1, ...options.engine });
  const speculation = { promptLookup: true, maxDraftTokens: 4, headTokens: null, headSampling: "auto" } as const;
  const loop = new StepLoop(engine, {
    limits: { ...generousLimits, prefixCacheEntries },
    frameIntervalMs: 0,
    createSpeculation: (cost) =>
      drafts
        ? Speculation.create({ model: engine, draft: null, options: { ...speculation, draftModel: null }, cost })
        : null,
  });
  const { adapters } = engine;
  assert.ok(adapters !== null);
  const load = (id: number) => loop.adapters.load({ id, generation: `generation ${id}`, path: `${id}.gguf` });
  return { engine, loop, load, host: adapters, frames: new Frames() };
}

/** What the engine says to a prompt by itself. */
function expected(prompt: Int32Array, count: number, adapter: number): number[] {
  const tokens = [...prompt];
  while (tokens.length < prompt.length + count) tokens.push(fakeNextToken(tokens, vocabSize, adapter));
  return tokens.slice(prompt.length);
}

const tokensOf = (frames: Frames, id: number) => frames.rows.filter((row) => row.id === id).map(({ token }) => token);

const gone = (error: unknown) => error instanceof ServerError && error.code === "model_failed" && error.retryable;

/** Follows a promise, to see whether it has settled. */
function watch(promise: Promise<unknown>) {
  const seen = { settled: false };
  promise.then(
    () => {
      seen.settled = true;
    },
    () => {},
  );
  return seen;
}

describe("adapters in the step loop", () => {
  for (const adaptersPerStep of [1, 8]) {
    for (const drafts of [false, true]) {
      it(`give each sequence its own adapter's tokens, ${adaptersPerStep} a step, ${drafts ? "with" : "without"} drafts`, async () => {
        const engine = { adaptersPerStep, maxSequences: 8 };
        const { loop, load, frames } = createLoop({ engine, drafts, prefixCacheEntries: 4 });
        for (const id of [1, 2, 3]) await load(id);
        const prompt = Int32Array.from({ length: 40 }, (_, i) => (i * i) % 60);
        const jobs = Array.from({ length: 12 }, (_, i) => job(i + 1, { prompt, adapter: i % 4, maxNewTokens: 30 }));
        for (const some of [jobs.slice(0, 8), jobs.slice(8)]) {
          loop.submit(frames, some);
          while (loop.step());
        }
        for (const { id, adapter } of jobs) assert.deepEqual(tokensOf(frames, id), expected(prompt, 30, adapter));
        const { adapters, prefixCache } = loop.snapshot();
        assert.equal(adapters.loaded, 3);
        assert.equal(adapters.switches > 0, adaptersPerStep === 1);
        // What is cached for one is of use to the next with the same adapter.
        assert.ok(prefixCache.hits >= 4, JSON.stringify(prefixCache));
      });
    }
  }

  it("are refused where they are not loaded, and all jobs with them", async () => {
    const { loop, load, frames } = createLoop();
    await load(1);
    assert.throws(() => loop.submit(frames, [job(1, { adapter: 1 }), job(2, { adapter: 2 })]), gone);
    const tooLong = [job(3, { adapter: 1 }), job(4, { adapter: 1, length: 1000 })];
    assert.throws(() => loop.submit(frames, tooLong), { code: "context_length_exceeded" });
    assert.equal(loop.step(), false);
    const left = watch(loop.adapters.unload(1));
    await settled();
    assert.ok(left.settled, "what was refused uses nothing");
  });

  it("are freed once, between steps, when the last sequence that names them has ended", async () => {
    const { loop, load, host, frames, engine } = createLoop({ prefixCacheEntries: 4 });
    await load(1);
    await load(2);
    const prompt = Int32Array.from({ length: 40 }, (_, i) => i);
    loop.submit(frames, [job(1, { adapter: 1, prompt, maxNewTokens: 8 }), job(2, { adapter: 2, prompt })]);
    loop.step();
    const [first, second] = [loop.adapters.unload(1), loop.adapters.unload(1)];
    const left = watch(first);
    assert.throws(() => loop.submit(frames, [job(3, { adapter: 1 })]), gone);
    while (tokensOf(frames, 1).length < 8) {
      await settled();
      assert.ok(!left.settled && host.loaded.has(1));
      loop.step();
    }
    assert.ok(host.loaded.has(1), "a step is no place to free anything");
    await Promise.all([first, second]);
    assert.deepEqual(host.log, ["load 1", "load 2", "unload 1"]);
    assert.deepEqual(tokensOf(frames, 1), expected(prompt, 8, 1));
    while (loop.step());
    assert.equal(engine.kv.copyCount, 1);
    await loop.adapters.unload(2);
    assert.equal(engine.kv.copyCount, 0);
    assert.equal(engine.kv.freeBlocks, engine.capacity.kvBlocks);
    await loop.adapters.unload(2);
    assert.deepEqual(host.log.slice(3), ["unload 2"]);
  });

  const ends: Readonly<Record<string, (rig: ReturnType<typeof createLoop>) => void>> = {
    "is cancelled": ({ loop, frames }) => loop.cancel(frames, [1]),
    "has met its stop string": ({ loop, frames }) => loop.cancel(frames, [1], "stop"),
    "has lost its reader": ({ loop, frames }) => loop.drop(frames),
    "is parked and then cancelled": ({ loop, frames }) => {
      loop.setPaused(frames, [1], true);
      loop.cancel(frames, [1]);
    },
    "fails with the loop": ({ loop }) => loop.stop(),
  };
  for (const [how, end] of Object.entries(ends)) {
    it(`are free when their sequence ${how}, waiting or running`, async () => {
      for (const steps of [0, 3]) {
        const rig = createLoop({ engine: { maxSequences: 1 } });
        await rig.load(1);
        rig.loop.submit(rig.frames, [job(1, { adapter: 1, maxNewTokens: 100 })]);
        for (let i = 0; i < steps; i++) rig.loop.step();
        const left = watch(rig.loop.adapters.unload(1));
        await settled();
        assert.ok(!left.settled);
        end(rig);
        await settled();
        assert.ok(left.settled);
        assert.deepEqual(rig.host.log, ["load 1", "unload 1"]);
      }
    });
  }

  it("are free when the engine has failed", async () => {
    const rig = createLoop({ engine: { onStep: () => assert.fail("the engine is broken") } });
    await rig.load(1);
    rig.loop.submit(rig.frames, [job(1, { adapter: 1 })]);
    assert.throws(() => rig.loop.step());
    await rig.loop.adapters.unload(1);
    assert.equal(rig.host.loaded.size, 0);
  });

  it("change nothing where they cannot be loaded", async () => {
    const { loop, load, host, frames } = createLoop();
    host.onLoad = () => {
      throw new ServerError("lora_device_load_failed", "there is no room");
    };
    await assert.rejects(load(1), { code: "lora_device_load_failed" });
    assert.equal(loop.snapshot().adapters.loaded, 0);
    assert.throws(() => loop.submit(frames, [job(1, { adapter: 1 })]), gone);
    host.onLoad = null;
    await load(1);
    await assert.rejects(load(1), { code: "conflict" });
    const without = new StepLoop(createFakeEngine(), { limits: generousLimits, frameIntervalMs: 0 });
    await assert.rejects(without.adapters.load({ id: 1, generation: "g", path: "p" }), { code: "unsupported" });
  });

  it("can be named as soon as they are loaded, while steps go on", async () => {
    const { loop, load, host, frames } = createLoop();
    let ready = () => {};
    host.onLoad = () => new Promise((resolve) => (ready = resolve));
    const loading = load(1);
    loop.submit(frames, [job(1)]);
    while (loop.step());
    assert.throws(() => loop.submit(frames, [job(2, { adapter: 1 })]), gone);
    ready();
    await loading;
    loop.submit(frames, [job(3, { adapter: 1 })]);
    while (loop.step());
    assert.deepEqual([tokensOf(frames, 1).length, tokensOf(frames, 3).length], [4, 4]);
  });

  it("are used by pooled outputs, too", async () => {
    const { loop, load, frames } = createLoop({ engine: { maxSequences: 1 } });
    await load(1);
    const prompts = [Int32Array.of(1, 2, 3), Int32Array.of(4, 5)];
    const pooled = (id: number, changes: Partial<PoolJob> = {}) =>
      loop.pool(frames, { id, job: { client: "c", prompts, adapter: 1, priority: 0, ...changes } });
    const values = pooled(1);
    const left = watch(loop.adapters.unload(1));
    await assert.rejects(pooled(2), gone);
    loop.step();
    await settled();
    assert.ok(!left.settled);
    while (loop.step());
    // The engine adds a thousand a row for each adapter's number.
    assert.deepEqual([...(await values)], [1006 / 3, 1009 / 2].map(Math.fround));
    await settled();
    assert.ok(left.settled);
  });
});

describe("adapters of jobs that are being prepared", () => {
  const grammar = { kind: "json_schema", schema: {} } as const;

  function preparing(store: PrefixStore | null = null) {
    const rig = createLoop({ prefixCacheEntries: 4, engine: { sequenceTokens: 512, maxBatchTokens: 512 } });
    const ends = { compile: () => {}, fail: (_error: Error) => {} };
    const matcher: Matcher = {
      isReady: true,
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
    const intake = new Intake({ loop: rig.loop, grammars, store });
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

  it("go on to be used by those jobs, though they are to be freed meanwhile", async () => {
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

  it("are refused with all jobs where one of them is gone", async () => {
    const { loop, load, intake, frames } = preparing();
    await load(1);
    const jobs = [job(1, { adapter: 1, grammar: grammar as never }), job(2, { adapter: 2 })];
    await assert.rejects(Promise.resolve(intake.submit(frames, jobs)), gone);
    await loop.adapters.unload(1);
  });

  it("take from disk what was stored with their own generation alone, and nothing once they are cancelled", async () => {
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
});

describe("the adapter of a run", () => {
  async function beginOf(t: TestContext, generation: string | null) {
    const rig = await createRun({}, { adapter: { id: 3, generation } });
    t.after(rig.close);
    rig.run.start();
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

  it("is what the model is asked for, and its generation is told with the first token", async (t) => {
    assert.equal((await beginOf(t, "abc")).adapterGeneration, "abc");
  });

  it("has no generation to tell where it is the model's own", async (t) => {
    assert.ok(!("adapterGeneration" in (await beginOf(t, null))));
  });

  it("goes along from the agents actor to the engine, for texts and for embeddings", async (t) => {
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
    const [embedded] = await readAll(server.embed(["a"], "tiny", { id: 7, generation: "g" }));
    assert.equal(embedded?.type, "embeddings");
    assert.deepEqual([...new Set(adapters)], [7]);
    await server.modelRef.ask("unloadAdapter", { id: 7 });
    const [refused] = await readAll(server.start({}, { id: 7, generation: "g" }));
    assert.ok(refused?.type === "error" && refused.error.code === "model_failed");
  });
});
