import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { PoolJob } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { job } from "../generation/rig.ts";
import { createLoop, expected, gone, tokensOf, watch } from "./adapters-rig.ts";

describe("adapters in the step loop", () => {
  for (const adaptersPerStep of [1, 8]) {
    for (const drafts of [false, true]) {
      it(`give each sequence the tokens of its adapter, ${adaptersPerStep} adapters a step, ${drafts ? "with" : "without"} drafts`, async () => {
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
        // The next sequence with the same adapter reuses the cached prefix.
        assert.ok(prefixCache.hits >= 4, JSON.stringify(prefixCache));
      });
    }
  }

  it("are refused with all jobs of a request if one is not loaded", async () => {
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
    "is preempted and then cancelled": ({ loop, frames }) => {
      loop.setPaused(frames, [1], true);
      loop.cancel(frames, [1]);
    },
    "fails with the loop": ({ loop }) => loop.stop(),
  };
  for (const [how, end] of Object.entries(ends)) {
    it(`are released when their sequence ${how}, waiting or running`, async () => {
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

  it("are released when the engine has failed", async () => {
    const rig = createLoop({ engine: { onStep: () => assert.fail("the engine is broken") } });
    await rig.load(1);
    rig.loop.submit(rig.frames, [job(1, { adapter: 1 })]);
    assert.throws(() => rig.loop.step());
    await rig.loop.adapters.unload(1);
    assert.equal(rig.host.loaded.size, 0);
  });

  it("change nothing if they cannot be loaded", async () => {
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

  it("are freed after loading if they were unloaded meanwhile", async () => {
    const { loop, load, host } = createLoop();
    for (const [id, outcome] of [
      [1, "loaded"],
      [2, "failed"],
    ] as const) {
      let settle = () => {};
      host.onLoad = () =>
        new Promise((resolve, reject) => {
          settle = outcome === "loaded" ? resolve : () => reject(new ServerError("lora_device_load_failed", "no room"));
        });
      const loading = load(id).catch(() => {});
      await assert.rejects(load(id), { code: "conflict" });
      const left = watch(loop.adapters.unload(id));
      await settled();
      assert.ok(!left.settled);
      settle();
      await loading;
      await settled();
      assert.ok(left.settled);
      assert.equal(host.loaded.size, 0);
      assert.equal(loop.adapters.count, 0);
    }
  });

  it("are used by pooled outputs, too", async () => {
    const { loop, load, frames } = createLoop({ engine: { maxSequences: 1 } });
    await load(1);
    const prompts = [Int32Array.of(1, 2, 3), Int32Array.of(4, 5)];
    const pooled = (id: number, changes: Partial<PoolJob> = {}) =>
      loop.pool(frames, { id, job: { client: "c", prompts, adapter: 1, priority: 0, hasBegun: false, ...changes } });
    const values = pooled(1);
    const left = watch(loop.adapters.unload(1));
    await assert.rejects(pooled(2), gone);
    loop.step();
    await settled();
    assert.ok(!left.settled);
    while (loop.step());
    // The engine adds 1000 times the adapter's number to each row.
    assert.deepEqual([...(await values)], [1006 / 3, 1009 / 2].map(Math.fround));
    await settled();
    assert.ok(left.settled);
  });

  it("cache no prefixes while being unloaded, and take no room from those of others", async () => {
    const { loop, load, frames, engine } = createLoop({ prefixCacheEntries: 2 });
    await load(1);
    for (const id of [1, 2]) {
      loop.submit(frames, [job(id)]);
      while (loop.step());
    }
    assert.equal(engine.kv.copyCount, 2);
    loop.submit(frames, [job(3, { adapter: 1, maxNewTokens: 100 }), job(4, { adapter: 1, maxNewTokens: 6 })]);
    while (tokensOf(frames, 4).length < 3) loop.step();
    const unloaded = loop.adapters.unload(1);
    while (tokensOf(frames, 4).length < 6) loop.step();
    loop.cancel(frames, [3]);
    assert.equal(engine.kv.copyCount, 2);
    await unloaded;
    assert.deepEqual([engine.kv.copyCount, loop.snapshot().prefixCache.evictions], [2, 0]);
  });

  it("are not freed any more once the engine is about to be disposed", async () => {
    const { loop, load, host } = createLoop();
    for (const id of [1, 2]) await load(id);
    const user = {};
    loop.adapters.use(1, user);
    const unloaded = loop.adapters.unload(1);
    loop.stop();
    loop.dispose();
    loop.adapters.release(1, user);
    await Promise.all([unloaded, loop.adapters.unload(2)]);
    assert.deepEqual(host.log, ["load 1", "load 2"]);
  });
});

describe("a step loop that has ended", () => {
  const ends: Readonly<Record<string, (rig: ReturnType<typeof createLoop>) => void>> = {
    "was stopped": ({ loop }) => loop.stop(),
    "has failed": ({ loop, engine, frames }) => {
      engine.step = () => assert.fail("the engine is broken");
      loop.submit(frames, [job(1)]);
      assert.throws(() => loop.step());
    },
  };
  for (const [how, end] of Object.entries(ends)) {
    it(`takes no jobs, pooled prompts or prefixes after it ${how}`, async () => {
      const rig = createLoop({ prefixCacheEntries: 2 });
      const { loop, frames, engine } = rig;
      end(rig);
      assert.throws(() => loop.submit(frames, [job(2)]), gone);
      const pooled = { client: "c", prompts: [Int32Array.of(1)], adapter: 0, priority: 0, hasBegun: false };
      await assert.rejects(loop.pool(frames, { id: 3, job: pooled }), gone);
      const tokens = Int32Array.of(1, 2, 3, 4);
      assert.equal(loop.importPrefix(0, tokens, new Uint8Array(tokens.buffer)), false);
      assert.equal(engine.kv.copyCount, 0);
    });
  }
});
