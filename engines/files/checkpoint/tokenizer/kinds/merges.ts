// Merges of a BPE model: pairs of symbols in the order in which they are joined. tokenizer.json writes a pair as "a b" or
// as ["a", "b"].
import { type JsonField, quoted } from "../../../json-field.ts";
import type { TokenizerJson } from "../source/tokenizer-json.ts";

export type Merge = readonly [left: string, right: string];

const maxMerges = 4 * 2 ** 20;
/** Maximum work of comparing the merges with all possible pairs, in characters. The largest vocabularies in use need 2^24. */
const maxWork = 2 ** 28;

/** Reads the merges. Throws `model_file_invalid` if they need a token that is not in `ids`, as the library does. */
export function readMerges({ model }: TokenizerJson, ids: ReadonlyMap<string, number>): Merge[] {
  const field = model.get("merges");
  const list = field.required(field.list());
  if (list.length > maxMerges) throw field.invalid(`has ${list.length} pairs; at most ${maxMerges} are read`);
  return list.map((value, index) => {
    const parts: unknown = typeof value === "string" ? value.split(" ") : value;
    if (!isMerge(parts)) throw element(field, index).invalid('is not a pair; expected "a b" or ["a", "b"]');
    for (const symbol of [...parts, parts.join("")]) {
      if (!ids.has(symbol)) throw element(field, index).invalid(`needs ${quoted(symbol)}, which is not in model.vocab`);
    }
    return parts;
  });
}

function isMerge(value: unknown): value is Merge {
  return Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === "string" && part !== "");
}

function element(field: JsonField, index: number): JsonField {
  return field.get(String(index));
}

/** Whether every text of more than one character is the result of a merge. */
export function buildsAll(merges: readonly Merge[], texts: Iterable<string>): boolean {
  const built = new Set(merges.map(([left, right]) => left + right));
  for (const text of texts) if (!built.has(text) && [...text].length > 1) return false;
  return true;
}

/** Scores by token, with which SentencePiece's algorithm does about the same as the merges. */
export interface MergeScores {
  readonly scores: ReadonlyMap<string, number>;
  /**
   * Number of pairs that SentencePiece's algorithm joins in another order than the merges, or joins although they are not merges; Infinity
   * if the tokens are too long to compare.
   */
  readonly differences: number;
}

/**
 * Returns scores for `texts`, which are in the order of their ids. SentencePiece's algorithm joins any two symbols whose joined text is a
 * token, in the order of the scores of the joined tokens. It therefore has the same result as the merges if all pairs that join to the same
 * token are merges and are consecutive in the list. `most`: once there are more differences, they are not counted further.
 */
export function mergeScores(merges: readonly Merge[], texts: ReadonlySet<string>, most: number): MergeScores {
  const scores = new Map<string, number>();
  const pairs = new Set<string>();
  let differences = 0;
  let previous = "";
  for (const [index, [left, right]] of merges.entries()) {
    const joined = left + right;
    if (joined !== previous && scores.has(joined)) differences++;
    if (!scores.has(joined)) scores.set(joined, -index - 1);
    previous = joined;
    pairs.add(`${left} ${right}`);
  }
  // In SentencePiece's models, ids are in the order of scores, so a token without merges ranks right after the token before it.
  let score = 0;
  for (const text of texts) {
    score = scores.get(text) ?? score - 0.5;
    scores.set(text, score);
  }
  return { scores, differences: differences + (differences > most ? 0 : countMissing(pairs, texts)) };
}

/** Returns the number of pairs of tokens that join to a token but are not merges. */
function countMissing(pairs: ReadonlySet<string>, texts: ReadonlySet<string>): number {
  let missing = 0;
  let work = 0;
  for (const text of texts) {
    work += text.length ** 2;
    if (work > maxWork) return Number.POSITIVE_INFINITY;
    let end = 0;
    for (const character of text) {
      end += character.length;
      const [left, right] = [text.slice(0, end), text.slice(end)];
      if (texts.has(left) && texts.has(right) && !pairs.has(`${left} ${right}`)) missing++;
    }
  }
  return missing;
}
