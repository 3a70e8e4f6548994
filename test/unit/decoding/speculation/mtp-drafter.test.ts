import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SpeculationOptions } from "../../../../engines/decoding/speculation/options.ts";
import type { DraftTarget, MtpHeads } from "../../../../engines/engine.ts";
import { createScriptedModel } from "../../../fixtures/fakes/scripted-model.ts";
import { decode, lookupOnly } from "../../../fixtures/speculative-decoding.ts";

const vocabSize = 251;
/** Returns the next token of a text that never repeats a pair of tokens, so that only MTP heads can draft it. */
const counting = (tokens: readonly number[]) => (tokens.at(-1)! * 31 + tokens.length) % vocabSize;

interface Scripted {
  /** Returns the token that the heads predict after these tokens. */
  readonly next: (tokens: readonly number[]) => number;
  readonly follows?: (target: { slot: number; total: number }) => boolean;
  readonly passMs?: number;
  readonly trainedTokens?: number;
}

/** Fake heads that know the text of each sequence. Their passes advance a clock. */
class ScriptedHeads implements MtpHeads {
  readonly trainedTokens: number;
  readonly depths: number[] = [];
  ms = 0;
  readonly #script: Scripted;

  constructor(script: Scripted) {
    this.#script = script;
    this.trainedTokens = script.trainedTokens ?? 3;
  }

  follows(slot: number, total: number): boolean {
    return this.#script.follows?.({ slot, total }) ?? true;
  }

  propose<T extends DraftTarget>(
    targets: readonly T[],
    depths: Int32Array,
    choose: (target: T, logits: Float32Array, row: number) => number,
  ): void {
    targets.forEach((target, i) => {
      assert.ok(this.follows(target.slot, target.total), "nothing is asked of sequences that are not followed");
      target.draftCount = 0;
      this.depths.push(depths[i]!);
      const tokens = [...target.tokens.subarray(0, target.total)];
      while (target.draftCount < depths[i]!) {
        const logits = new Float32Array(2 * vocabSize);
        logits[vocabSize + this.#script.next(tokens)] = 1;
        const token = choose(target, logits, 1);
        tokens.push(token);
        target.draft![target.draftCount++] = token;
      }
    });
    this.ms += (this.#script.passMs ?? 1) * Math.max(...targets.map(({ draftCount }) => draftCount));
  }
}

/** Decodes with and without the heads. Asserts that the texts are equal. */
function run(script: Scripted, changes: Partial<SpeculationOptions> = {}, sequences = 2) {
  const heads = new ScriptedHeads(script);
  const engine = { vocabSize, maxSequences: 4, maxLogitsRows: 60 };
  const prompts = Array.from({ length: sequences }, (_, p) =>
    Array.from({ length: 9 }, (_, i) => (i * 7 + p) % vocabSize),
  );
  const options = { prompts, maxNewTokens: 150, stepMs: (tokens: number) => 20 + tokens };
  const plain = decode({ ...options, model: createScriptedModel(counting, engine), options: null });
  const drafted = decode({
    ...options,
    model: Object.assign(createScriptedModel(counting, engine), { mtp: heads }),
    options: { ...lookupOnly, promptLookup: false, ...changes },
    draftingMs: () => heads.ms,
  });
  assert.deepEqual(drafted.texts, plain.texts);
  return { heads, drafted, speedup: plain.ms / drafted.ms };
}

describe("prediction heads", () => {
  it("that are mostly right make decoding faster", () => {
    const nearly = (tokens: readonly number[]) => (counting(tokens) + (tokens.length % 9 === 0 ? 1 : 0)) % vocabSize;
    for (const sequences of [1, 4]) {
      const { speedup } = run({ next: nearly }, {}, sequences);
      assert.ok(speedup > 1.5, `${speedup} with ${sequences}`);
    }
  });

  it("that are always wrong, or as slow as the model, are no longer used", () => {
    const wrong = run({ next: (tokens) => (counting(tokens) + 1) % vocabSize });
    assert.ok(wrong.speedup > 0.9, `${wrong.speedup}`);
    const slow = run({ next: counting, passMs: 30 });
    assert.ok(slow.speedup > 0.85, `${slow.speedup}`);
  });

  it("draft the number of tokens they were trained for, or the configured number", () => {
    const deepest = ({ heads }: { heads: ScriptedHeads }) => Math.max(...heads.depths);
    assert.equal(deepest(run({ next: counting })), 3);
    assert.equal(deepest(run({ next: counting }, { mtpTokens: 1 })), 1);
    assert.equal(deepest(run({ next: counting }, { mtpTokens: 6 })), 6);
    assert.equal(deepest(run({ next: counting }, { mtpTokens: 6, maxDraftTokens: 2 })), 2);
  });

  it("do not draft for sequences that they do not follow", () => {
    const { heads, drafted } = run({ next: counting, follows: ({ slot, total }) => slot === 1 && total % 2 === 0 });
    assert.ok(heads.depths.length > 10 && drafted.speculation!.statistics.accepted > 10);
  });
});
