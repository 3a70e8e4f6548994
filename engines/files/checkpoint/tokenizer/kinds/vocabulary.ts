// Vocabulary of a tokenizer as keys of a GGUF file, and the facts about it that the rest of the conversion needs.
import type { Pairs } from "../token-pairs.ts";
import type { Merge } from "./merges.ts";

export interface VocabularyPairs {
  /** Value of tokenizer.ggml.model. */
  readonly model: "gpt2" | "llama" | "bert" | "t5";
  readonly pairs: Pairs;
  readonly size: number;
  /** Token ids by token text, as the folder's files spell it. */
  readonly ids: ReadonlyMap<string, number>;
  /** Text of the token for unknown text, if the vocabulary itself names it. */
  readonly unknown: string | null;
  /** All merges, if the scores in `pairs` do not express them exactly; else absent. */
  readonly merges?: readonly Merge[];
}

/** Returns the number of tokens: `wanted`, or else one more than the largest id. */
export function sizeFor(wanted: number | null, ids: Iterable<number>): number {
  if (wanted !== null) return wanted;
  let largest = -1;
  for (const id of ids) largest = Math.max(largest, id);
  return largest + 1;
}
