import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StepTimeModel } from "../../../../engines/decoding/scheduler/step-time-model.ts";
import { ModelDrafter } from "../../../../engines/decoding/speculation/model-drafter.ts";
import { Speculation } from "../../../../engines/decoding/speculation/speculation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createScriptedModel, type ScriptedOptions } from "../../../fixtures/fakes/scripted-model.ts";
import { seededRandom } from "../../../fixtures/scheduling.ts";
import { decode, lookupOnly } from "../../../fixtures/speculative-decoding.ts";

const modelOnly = { ...lookupOnly, promptLookup: false };

/** Returns the next token of a text that never repeats a pair of tokens, so that only a model can draft it. */
const counting = (tokens: readonly number[]) => (tokens.at(-1)! * 31 + tokens.length) % 251;
const vocabSize = 251;

/** Returns a variant of `counting` in which about one token in `oneIn` differs. */
const nearly = (oneIn: number) => (tokens: readonly number[]) =>
  (counting(tokens) + (tokens.length % oneIn === 0 ? 1 : 0)) % vocabSize;

function prompts(count: number, length: number): number[][] {
  const random = seededRandom(count);
  return Array.from({ length: count }, () => Array.from({ length }, () => Math.floor(random() * vocabSize)));
}

const stepMs = (tokens: number) => 20 + tokens;

interface Drafting {
  readonly next: (tokens: readonly number[]) => number;
  readonly sequences?: number;
  readonly promptLength?: number;
  readonly draft?: ScriptedOptions;
  /** Duration in ms of a step of the draft model. */
  readonly draftMs?: (tokens: number) => number;
}

/** Decodes with and without a draft model. Asserts that the texts are equal. */
function run({ next, sequences = 1, promptLength = 20, draft, draftMs = (tokens) => 2 + 0.05 * tokens }: Drafting) {
  let clock = 0;
  const fed: number[] = [];
  const onStep = ({ tokenCount }: { tokenCount: number }) => {
    fed.push(tokenCount);
    clock += draftMs(tokenCount);
  };
  const engine = { vocabSize, maxSequences: 4, maxLogitsRows: 60 };
  const small = createScriptedModel(next, { ...engine, ...draft, onStep });
  const options = { prompts: prompts(sequences, promptLength), maxNewTokens: 200, stepMs };
  const plain = decode({ ...options, model: createScriptedModel(counting, engine), options: null });
  const drafted = decode({
    ...options,
    model: createScriptedModel(counting, engine),
    draft: small,
    options: modelOnly,
    draftingMs: () => clock,
  });
  assert.deepEqual(drafted.texts, plain.texts);
  return { drafted, speedup: plain.ms / drafted.ms, small, fed };
}

describe("a draft model", () => {
  it("that is small and mostly right makes decoding faster, for one sequence and for several", () => {
    for (const sequences of [1, 4]) {
      const { speedup } = run({ next: nearly(9), sequences });
      assert.ok(speedup > 1.5, `${speedup} with ${sequences}`);
    }
  });

  it("that is always wrong is no longer used", () => {
    const { speedup } = run({ next: (tokens) => (counting(tokens) + 1) % vocabSize });
    assert.ok(speedup > 0.9, `${speedup}`);
  });

  it("that is as slow as the model it drafts for is no longer used", () => {
    const { speedup } = run({ next: nearly(4), draftMs: stepMs });
    assert.ok(speedup > 0.85, `${speedup}`);
  });

  it("reads a long prompt in parts, and drafts once it has read it", () => {
    const { fed, drafted } = run({ next: nearly(9), promptLength: 1500, draftMs: (tokens) => 2 + 0.2 * tokens });
    assert.ok(Math.max(...fed) < 300, `${Math.max(...fed)} tokens in a step`);
    assert.ok(fed.reduce((a, b) => a + b, 0) >= 1500);
    assert.ok(drafted.speculation!.statistics.accepted > 50);
  });

  it("stops drafting when its own context is full", () => {
    const { drafted, small } = run({ next: nearly(9), draft: { sequenceTokens: 100 } });
    assert.ok(drafted.speculation!.statistics.accepted > 20);
    assert.ok(small.cache.size === 0, "what has ended is released");
  });

  it("drafts neither for sequences with tokens it lacks, nor tokens that the target lacks", () => {
    const { drafted } = run({ next: (tokens) => tokens.at(-1)! % 100, draft: { vocabSize: 100 } });
    assert.equal(drafted.speculation!.statistics.accepted, 0);
    run({ next: () => 299, draft: { vocabSize: 300 } });
  });

  it("reuses a slot even if it was not told that the former sequence ended", () => {
    const model = createScriptedModel(counting, { vocabSize });
    const drafter = new ModelDrafter(model, vocabSize, () => 0);
    const open = (slot: number, first: number) => ({
      tokens: Int32Array.of(first, first + 1, first + 2, 0, 0),
      total: 3,
      slot,
      draft: new Int32Array(4),
      draftCount: 0,
    });
    type Sequences = Parameters<ModelDrafter["draft"]>[0];
    const [old, next] = [open(1, 10), open(1, 60)];
    drafter.draft([old] as unknown as Sequences, Int32Array.of(2), 0);
    drafter.draft([next] as unknown as Sequences, Int32Array.of(2), 0);
    assert.equal(next.draftCount, 2);
    assert.equal(next.draft[0], counting([60, 61, 62]));
    next.slot = 3;
    drafter.draft([next] as unknown as Sequences, Int32Array.of(1), 0);
    assert.equal(next.draft[0], counting([60, 61, 62]));
    assert.deepEqual([...model.cache.keys()], [3], "what it held of it in the other slot is released");
  });

  it("is disposed together with the speculation, and also if speculation is not used", () => {
    const cost = new StepTimeModel(20, { decodeSlowdown: 3, maxStepMs: 250 });
    const parts = { options: modelOnly, cost };
    const draft = createScriptedModel(counting);
    Speculation.create({ ...parts, model: createScriptedModel(counting), draft })!.dispose();
    assert.ok(draft.isDisposed);
    const other = createScriptedModel(counting);
    const rigid = createScriptedModel(counting, { truncate: false });
    assert.equal(Speculation.create({ ...parts, model: rigid, draft: other }), null);
    assert.ok(other.isDisposed);
  });

  it("must be able to roll back", () => {
    const cost = new StepTimeModel(20, { decodeSlowdown: 3, maxStepMs: 250 });
    const draft = createScriptedModel(counting, { truncate: false });
    assert.throws(
      () => Speculation.create({ model: createScriptedModel(counting), draft, options: modelOnly, cost }),
      (error: ServerError) => error instanceof ServerError && /draft_model expects/.test(error.message),
    );
  });
});
