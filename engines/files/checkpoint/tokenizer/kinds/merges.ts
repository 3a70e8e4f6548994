// Merges of a BPE model: pairs of symbols in the order in which they are joined. tokenizer.json writes a pair as "a b" or
// as ["a", "b"].
import { type JsonField, quoted } from "../source/json-field.ts";
import type { TokenizerJson } from "../source/tokenizer-json.ts";

export type Merge = readonly [left: string, right: string];

const maxMerges = 4 * 2 ** 20;
/** Maximum number of characters of a vocabulary whose merges are compared with all possible ones. */
const maxCharacters = 2 ** 24;

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

/** True if some merge builds each text of more than one character. */
export function buildsAll(merges: readonly Merge[], texts: Iterable<string>): boolean {
  const built = new Set(merges.map(([left, right]) => left + right));
  for (const text of texts) if (!built.has(text) && [...text].length > 1) return false;
  return true;
}

/**
 * Returns scores with which SentencePiece's algorithm joins the same pairs in the same order; null if there are none. That
 * algorithm joins any two symbols whose text is a token, in the order of the scores of the joined tokens. So all pairs
 * that make a token must be merges, and must stand together.
 */
export function mergeScores(merges: readonly Merge[], texts: ReadonlySet<string>): Map<string, number> | null {
  const scores = new Map<string, number>();
  const pairs = new Set<string>();
  let last = "";
  for (const [index, [left, right]] of merges.entries()) {
    const joined = left + right;
    if (joined !== last && scores.has(joined)) return null;
    if (joined !== last) scores.set(joined, -index - 1);
    last = joined;
    pairs.add(`${left} ${right}`);
  }
  return hasAllPairs(pairs, texts) ? scores : null;
}

function hasAllPairs(pairs: ReadonlySet<string>, texts: ReadonlySet<string>): boolean {
  let characters = 0;
  for (const text of texts) {
    characters += text.length;
    if (characters > maxCharacters) return false;
    let end = 0;
    for (const character of text) {
      end += character.length;
      const [left, right] = [text.slice(0, end), text.slice(end)];
      if (texts.has(left) && texts.has(right) && !pairs.has(`${left} ${right}`)) return false;
    }
  }
  return true;
}
