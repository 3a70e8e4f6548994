// Gap between the two largest logits at the first token where two greedy generations differ. Rounding can only change the order
// of nearly equal logits.
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel } from "../../engines/engine.ts";

const chunkTokens = 32;
const slot = 0;

/** Returns the index of the first different token of two responses; null if they are equal. */
export function firstDifference(a: readonly number[], b: readonly number[]): number | null {
  const length = Math.max(a.length, b.length);
  for (let at = 0; at < length; at++) if (a[at] !== b[at]) return at;
  return null;
}

/** Returns the difference between the two largest logits after `tokens`, as a share of the range of all logits. */
export function leadOfLikeliest(model: LoadedModel, tokens: Int32Array): number {
  const batch = new Batch(1, chunkTokens);
  let logits = new Float32Array(0);
  for (let from = 0; from < tokens.length; from += chunkTokens) {
    const to = Math.min(from + chunkTokens, tokens.length);
    if (!model.kv.reserve(slot, to)) throw new Error(`no room for ${to} tokens of one sequence`);
    batch.clear();
    batch.addRow(slot, tokens, from, to, to === tokens.length ? 1 : 0, 0);
    logits = model.step(batch).logits.slice(0, model.card.vocabSize);
  }
  model.kv.release(slot);
  const sorted = logits.sort();
  const [first = Number.NaN, second = Number.NaN, least = Number.NaN] = [sorted.at(-1), sorted.at(-2), sorted[0]];
  return (first - second) / (first - least);
}
