import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { StepTimeModel } from "../../../../engines/decoding/scheduler/step-time-model.ts";
import { Speculation } from "../../../../engines/decoding/speculation/speculation.ts";
import { createScriptedModel, type ScriptedOptions } from "../../../fixtures/fakes/scripted-model.ts";
import { seededRandom } from "../../../fixtures/scheduling.ts";
import { type Decoded, type DecodingOptions, decode, lookupOnly } from "../../../fixtures/speculative-decoding.ts";

/** Step time in ms of a small model on two cores. */
const memoryBound = (tokens: number) => 3.5 + 1.1 * tokens;
const computeBound = (tokens: number) => 1 + 2 * tokens;

/** Returns the next token of a text in which each token depends on the last three. The text sometimes repeats itself. */
const wandering = (tokens: readonly number[]) => {
  let hash = 7;
  for (const token of tokens.slice(-3)) hash = Math.imul(hash ^ token, 0x9e3779b1) ^ (hash >>> 13);
  return (hash >>> 4) % 24;
};

/** Returns a model that writes a given text, whatever tokens came before. */
const writing = (texts: readonly (readonly number[])[]) => (tokens: readonly number[], slot: number) =>
  texts[slot]?.[tokens.length] ?? 0;

type Case = Omit<DecodingOptions, "model" | "options">;

function bothWays(next: (tokens: readonly number[], slot: number) => number, options: Case, engine: ScriptedOptions) {
  const plain = decode({ ...options, model: createScriptedModel(next, engine), options: null });
  const drafted = decode({ ...options, model: createScriptedModel(next, engine), options: lookupOnly });
  assert.deepEqual(drafted.texts, plain.texts);
  return { plain, drafted, speedup: plain.ms / drafted.ms };
}

function tokensOf(random: () => number, length: number, vocabSize: number): number[] {
  return Array.from({ length }, () => Math.floor(random() * vocabSize));
}

/** Returns a file as the prompt, and the whole text: the file, followed by the same file with an edit every 80 tokens. */
function edited(random: () => number, vocabSize: number): { prompt: number[]; whole: number[] } {
  const file = tokensOf(random, 400, vocabSize);
  const answer = file.map((token, i) => (i % 80 < 77 ? token : (token + 1) % vocabSize));
  return { prompt: file, whole: [...file, ...answer] };
}

function acceptedShare({ speculation }: Decoded): number {
  const { proposed, accepted } = speculation!.statistics;
  return accepted / proposed;
}

describe("speculation", () => {
  it("leaves greedy texts unchanged, for any number of sequences, length and cost", () => {
    const cases = fc.record({
      prompts: fc.array(fc.array(fc.integer({ min: 0, max: 23 }), { minLength: 1, maxLength: 40 }), {
        minLength: 1,
        maxLength: 4,
      }),
      maxNewTokens: fc.integer({ min: 1, max: 80 }),
      perToken: fc.double({ min: 0, max: 3, noNaN: true }),
    });
    fc.assert(
      fc.property(cases, ({ prompts, maxNewTokens, perToken }) => {
        bothWays(wandering, { prompts, maxNewTokens, stepMs: (tokens) => 4 + perToken * tokens }, {});
      }),
      { numRuns: 100 },
    );
  });

  it("makes editing a text at least 1.7 times faster", () => {
    const { prompt, whole } = edited(seededRandom(1), 200);
    const options = { prompts: [prompt], maxNewTokens: 400, stepMs: memoryBound };
    const { speedup } = bothWays(writing([whole]), options, { vocabSize: 200 });
    assert.ok(speedup > 1.7, `${speedup}`);
  });

  it("costs next to nothing if the text only seems to repeat itself", () => {
    const random = seededRandom(2);
    // The text has so few different tokens that most pairs of tokens have occurred before, but they predict nothing.
    const whole = tokensOf(random, 600, 16);
    const options = { prompts: [whole.slice(0, 100)], maxNewTokens: 500, stepMs: memoryBound };
    const { speedup } = bothWays(writing([whole]), options, { vocabSize: 16 });
    assert.ok(speedup > 0.97, `${speedup}`);
  });

  it("decodes many sequences without drafts if step time grows with tokens, even if all of them copy", () => {
    const random = seededRandom(3);
    const texts = Array.from({ length: 16 }, () => edited(random, 100));
    const options = { prompts: texts.map(({ prompt }) => prompt), maxNewTokens: 200, stepMs: computeBound };
    const engine = { maxSequences: 16, vocabSize: 100 };
    const { drafted, speedup } = bothWays(writing(texts.map(({ whole }) => whole)), options, engine);
    assert.ok(speedup > 0.97, `${speedup}`);
    const plain = drafted.widths.slice(50).filter((tokens) => tokens <= 16);
    assert.ok(plain.length > 0.8 * (drafted.widths.length - 50), "nearly all steps are of one token a sequence");
  });

  it("makes sequences that copy faster than those that do not, in the same steps", () => {
    const random = seededRandom(4);
    const copies = [edited(random, 64), edited(random, 64)];
    const free = [tokensOf(random, 800, 64), tokensOf(random, 800, 64)];
    const texts = [...copies.map(({ whole }) => whole), ...free];
    const prompts = texts.map((text) => text.slice(0, 400));
    const options = { prompts, maxNewTokens: [390, 390, 100, 100], stepMs: memoryBound };
    const { drafted, speedup } = bothWays(writing(texts), options, {});
    assert.ok(speedup > 1.5, `${speedup}`);
    assert.ok(acceptedShare(drafted) > 0.7, `${acceptedShare(drafted)}`);
  });

  it("recovers from a disturbed first attempt", () => {
    const { prompt, whole } = edited(seededRandom(5), 200);
    let tries = 0;
    const stepMs = (tokens: number) => (tokens > 1 && ++tries <= 2 ? 60 : memoryBound(tokens));
    const { drafted } = bothWays(
      writing([whole]),
      { prompts: [prompt], maxNewTokens: 400, stepMs },
      { vocabSize: 200 },
    );
    assert.ok(drafted.steps < 250, `${drafted.steps} steps`);
  });

  it("never asks for more logits rows than the model has", () => {
    const texts = Array.from({ length: 4 }, (_, i) => edited(seededRandom(i), 100));
    const options = { prompts: texts.map(({ prompt }) => prompt), maxNewTokens: 100, stepMs: () => 5 };
    const engine = { vocabSize: 100, maxLogitsRows: 9 };
    const { drafted } = bothWays(writing(texts.map(({ whole }) => whole)), options, engine);
    assert.ok(drafted.widths.includes(9), "there is something to draft");
  });

  it("counts drafts, their tokens, and which of them were right", () => {
    const { prompt, whole } = edited(seededRandom(6), 200);
    const options = { prompts: [prompt], maxNewTokens: 200, stepMs: memoryBound };
    const { drafted } = bothWays(writing([whole]), options, { vocabSize: 200 });
    const { drafts, proposed, accepted, acceptedAt } = drafted.speculation!.statistics;
    assert.equal(
      acceptedAt.reduce((a, b) => a + b, 0),
      accepted,
    );
    assert.equal(accepted + drafted.steps, 199, "each step's own token, and the accepted ones, behind the first");
    assert.ok(acceptedAt[0]! <= drafts && drafts > 0);
    assert.equal(drafted.widths.reduce((a, b) => a + b, 0) - drafted.steps, proposed);
  });

  it("withdraws drafts that no step has verified", () => {
    const cost = new StepTimeModel(20, { decodeSlowdown: 3, maxStepMs: 250 });
    for (const tokens of [1, 2, 8]) cost.observe(tokens, 0, 5);
    const model = createScriptedModel(() => 0);
    const speculation = Speculation.create({ model, draft: null, options: lookupOnly, cost })!;
    const text = Int32Array.from({ length: 60 }, (_, i) => i % 20);
    const sequence = { tokens: text, promptLength: 50, total: 50, slot: 0, draft: null, draftCount: 0, spans: [] };
    const decoding = [sequence] as unknown as Parameters<Speculation["prepare"]>[0];
    speculation.prepare(decoding);
    assert.ok(sequence.draftCount > 0);
    speculation.prepare([]);
    assert.equal(sequence.draftCount, 0);
    speculation.prepare(decoding);
    assert.ok(sequence.draftCount > 0);
    speculation.forget(decoding[0]!);
    assert.equal(sequence.draftCount, 0);
  });

  it("is null if the model cannot roll back, or there is no source of drafts", () => {
    const cost = new StepTimeModel(20, { decodeSlowdown: 3, maxStepMs: 250 });
    const rigid = createScriptedModel(() => 0, { truncate: false });
    assert.equal(Speculation.create({ model: rigid, draft: null, options: lookupOnly, cost }), null);
    const off = { ...lookupOnly, promptLookup: false };
    assert.equal(Speculation.create({ model: createScriptedModel(() => 0), draft: null, options: off, cost }), null);
  });
});
