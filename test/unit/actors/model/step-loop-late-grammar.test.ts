// Late token masks in the step loop: a sequence whose mask is not ready skips steps, its tokens stay the same, and other
// sequences are not delayed.
import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import type { SequenceJob } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { Batch } from "../../../../engines/batch.ts";
import type { Allowed, Matcher } from "../../../../engines/decoding/grammar/matcher.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createFakeEngine, type FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

const vocabSize = 64;

/**
 * Grammar whose masks allow even and odd tokens alternately. Every fifth mask comes with three forced tokens. Mask `i` is
 * ready after `lateness(i)` polls; never if this is Infinity.
 */
class LateMatcher implements Matcher {
  readonly param = "response_format";
  readonly waits: number[] = [];
  closed = false;
  failure: ServerError | null = null;
  readonly #lateness: (answer: number) => number;
  #answers = 0;
  #looksLeft: number;
  #isMissed = false;

  constructor(lateness: (answer: number) => number) {
    this.#lateness = lateness;
    this.#looksLeft = lateness(0);
  }

  get isReady(): boolean {
    if (this.#isMissed && this.#looksLeft > 0) this.#looksLeft--;
    return this.failure !== null || !this.#isMissed || this.#looksLeft === 0;
  }

  wait(limitMs: number): boolean {
    this.waits.push(limitMs);
    this.#isMissed = this.#looksLeft > 0;
    return this.failure !== null || !this.#isMissed;
  }

  allowed(): Allowed {
    if (this.failure !== null) throw this.failure;
    assert.equal(this.#looksLeft, 0, "an answer is used that is not there");
    const forced = this.#answers % 5 === 4 ? Int32Array.of(10, 12, 14) : new Int32Array(0);
    const mask = new Int32Array(vocabSize / 32).fill(this.#answers % 2 === 0 ? 0x5555_5555 : 0xaaaa_aaaa | 0);
    return { forced, mask };
  }

  accept(): void {
    this.#answers++;
    this.#isMissed = false;
    this.#looksLeft = this.#lateness(this.#answers);
  }

  close(): void {
    this.closed = true;
  }
}

const inTime = () => 0;
const lateInTurn = (answer: number) => [3, 0, 1, 0, 7, 2][answer % 6] as number;
const never = (answer: number) => (answer === 2 ? Infinity : 0);

interface Setting {
  readonly engine?: FakeEngineOptions;
  readonly limits?: Partial<SchedulerLimits>;
}

const loops: StepLoop[] = [];
afterEach(() => {
  for (const loop of loops.splice(0)) loop.stop();
});

function createRig({ engine, limits }: Setting = {}) {
  const model = createFakeEngine({ vocabSize, maxSequences: 4, ...engine });
  const loop = new StepLoop(model, { limits: { ...generousLimits, ...limits }, frameIntervalMs: 0 });
  loops.push(loop);
  const frames = new Frames();
  const submit = (jobs: readonly SequenceJob[], lateness: ((answer: number) => number) | null) => {
    const matchers = jobs.map(() => (lateness ? new LateMatcher(lateness) : null));
    const grammars = new Map(jobs.flatMap(({ id }, i) => (matchers[i] ? [[id, { open: () => matchers[i]! }]] : [])));
    loop.submit(frames, jobs, grammars);
    return matchers as LateMatcher[];
  };
  const tokensOf = (id: number) => frames.rows.filter((row) => row.id === id).map(({ token }) => token);
  return { model, loop, frames, submit, tokensOf };
}

/** Runs the loop until no work is left. Checks its integrity each time that it is idle. */
async function runToEnd({ loop }: ReturnType<typeof createRig>): Promise<void> {
  const running = loop.run();
  while (loop.snapshot().running + loop.snapshot().waiting > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await new Promise((resolve) => setTimeout(resolve, 10));
  loop.stop();
  await running;
}

const structured = (id: number, changes: Parameters<typeof job>[1] = {}) => job(id, { maxNewTokens: 24, ...changes });

/** Runs three sequences with a grammar and one without. Returns their tokens and the step loop's counters. */
async function outcome(lateness: (answer: number) => number, setting: Setting = {}, maxNewTokens = 24) {
  const rig = createRig(setting);
  const jobs = [8, 40, 1].map((length, i) => job(i + 1, { length, maxNewTokens }));
  rig.submit(jobs, lateness);
  rig.submit([job(4, { maxNewTokens: 30 })], null);
  await runToEnd(rig);
  const { tokens, promptTokens, ended, memoryPreemptions } = rig.loop.snapshot();
  assert.equal(rig.model.cache.size, 0);
  return { tokens: [1, 2, 3, 4].map(rig.tokensOf), counts: { tokens, promptTokens, ended, memoryPreemptions } };
}

describe("grammar masks that arrive late", () => {
  it("change no token and no count, at the end of a prompt, after forced tokens and elsewhere", async () => {
    assert.deepEqual(await outcome(lateInTurn), await outcome(inTime));
  });

  it("change none if steps are small, prompts are shared and sequences lose their KV", async () => {
    const small = { maxBatchTokens: 8, maxPrefillChunkTokens: 4, prefixCacheEntries: 2 };
    const engine = { sequenceTokens: 256, blockTokens: 8 };
    const late = await outcome(
      lateInTurn,
      { engine: { ...engine, maxBatchTokens: 8, kvBlocks: 40 }, limits: small },
      120,
    );
    assert.deepEqual(late.tokens, (await outcome(inTime, { engine }, 120)).tokens);
    assert.ok(late.counts.memoryPreemptions > 0);
  });

  it("change none if other sequences wait for the prompt of the late one", async () => {
    const outputs = [];
    for (const lateness of [inTime, lateInTurn]) {
      const limits = { prefixCacheEntries: 4, maxPrefillChunkTokens: 32 };
      const rig = createRig({ engine: { sequenceTokens: 256 }, limits });
      const prompt = Int32Array.from({ length: 100 }, (_, i) => i % 64);
      rig.submit(
        [1, 2, 3].map((id) => structured(id, { prompt })),
        lateness,
      );
      await runToEnd(rig);
      outputs.push([1, 2, 3].map(rig.tokensOf));
    }
    assert.equal(outputs[0]![0]!.length, 24);
    assert.deepEqual(outputs[0], outputs[1]);
  });

  it("do not change the logprobs of a prompt", async () => {
    const records = [];
    for (const lateness of [inTime, lateInTurn]) {
      const rig = createRig();
      const sampling = { ...greedySampling, topLogprobs: 2 };
      rig.submit([structured(1, { length: 20, promptLogprobs: 2, sampling })], lateness);
      await runToEnd(rig);
      records.push(rig.frames.all.flatMap(({ prompts, logprobs }) => [...prompts, logprobs ?? []]));
    }
    assert.ok(records[0]!.length > 0);
    assert.deepEqual(records[0], records[1]);
  });

  it("delay no other sequence: the others have a row in every step", async () => {
    const rowCounts: number[] = [];
    const rig = createRig({ engine: { onStep: (batch: Batch) => rowCounts.push(batch.rowCount) } });
    const [matcher] = rig.submit([structured(1)], never);
    rig.submit([job(2, { maxNewTokens: 100 })], null);
    for (let i = 0; i < 100; i++) assert.ok(rig.loop.step());
    assert.equal(rig.tokensOf(2).length, 100);
    assert.equal(rig.tokensOf(1).length, 2);
    assert.ok(rowCounts.slice(4).every((count) => count === 1));
    assert.ok(matcher!.waits.every((limitMs) => limitMs < 100));
    rig.loop.cancel(rig.frames, [1]);
    assert.ok(matcher!.closed);
    await runToEnd(rig);
    assert.equal(rig.model.cache.size, 0);
  });

  it("are waited for once per step, not once per row", () => {
    const rig = createRig({
      engine: { onStep: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 40) },
    });
    const matchers = rig.submit([structured(1), structured(2)], (answer) => (answer === 0 ? 1 : 0));
    const [first] = matchers;
    first!.wait = (limitMs) => {
      first!.waits.push(limitMs);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, limitMs);
      return false;
    };
    rig.loop.step();
    assert.ok(first!.waits[0]! > 8 && first!.waits[0]! < 100, "a quarter of the pass");
    assert.ok(matchers[1]!.waits[0]! <= 1);
  });

  it("may never arrive: the sequence fails with its grammar, and the others continue", async () => {
    const rig = createRig();
    const [matcher] = rig.submit([structured(1)], never);
    rig.submit([job(2, { maxNewTokens: 20 })], null);
    while (rig.loop.step());
    matcher!.failure = new ServerError("unsupported", "too ambiguous", { param: "grammar" });
    rig.submit([job(3)], null);
    await runToEnd(rig);
    const failed = rig.frames.all.flatMap((frame) => frame.failed);
    assert.deepEqual(failed, [{ id: 1, error: { code: "unsupported", message: "too ambiguous", param: "grammar" } }]);
    assert.deepEqual([rig.tokensOf(2).length, rig.tokensOf(3).length], [20, 4]);
    assert.equal(rig.model.cache.size, 0);
  });

  it("let sequences of other adapters run meanwhile", async () => {
    const rig = createRig({ engine: { adaptersPerStep: 1 } });
    for (const id of [1, 2]) await rig.loop.adapters.load({ id, generation: `${id}`, path: `${id}.gguf` });
    rig.submit([structured(1, { adapter: 1 })], never);
    rig.submit([job(2, { adapter: 2, maxNewTokens: 20 })], null);
    for (let i = 0; i < 40; i++) rig.loop.step();
    assert.equal(rig.tokensOf(2).length, 20);
  });
});

describe("on an engine that cannot truncate, late masks", () => {
  const setting = { engine: { capabilities: { truncate: false } } };

  it("are waited for within the step", async () => {
    const rig = createRig(setting);
    const [matcher] = rig.submit([structured(1)], inTime);
    const waited: number[] = [];
    matcher!.wait = (limitMs) => {
      waited.push(limitMs);
      return waited.length % 2 === 0;
    };
    await runToEnd(rig);
    assert.equal(rig.tokensOf(1).length, 24);
    assert.ok(waited.every((limitMs, i) => (i % 2 === 0 ? limitMs <= 5 : limitMs > 100 && limitMs <= 250)));
  });

  it("fail their own sequence if that takes too long", async () => {
    const rig = createRig(setting);
    rig.submit([structured(1)], never);
    rig.submit([job(2, { maxNewTokens: 20 })], null);
    await runToEnd(rig);
    const [failed] = rig.frames.all.flatMap((frame) => frame.failed);
    assert.equal(failed?.id, 1);
    assert.equal(failed?.error.code, "unsupported");
    assert.equal(failed?.error.param, "response_format");
    assert.equal(rig.tokensOf(2).length, 20);
  });
});
