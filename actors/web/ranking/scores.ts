// Passage scores for a query: BM25 of the words, or similarity of the embeddings.
import MiniSearch from "minisearch";

/** A passage of a page. `page`: index of the page. */
export interface Passage {
  readonly page: number;
  readonly title: string;
  readonly text: string;
}

/** Computes vectors of Euclidean length 1. `inputType`: role of the texts for the embedding model. */
export type Embed = (texts: readonly string[], inputType: "query" | "document") => Promise<readonly Float32Array[]>;

/** Maximum number of passages to embed. The passages with the best BM25 scores are chosen. */
const maxEmbedded = 64;
/** Weight of a query word that matches only the beginning of a word in the passage, such as `bake` and `baker`. */
const prefixWeight = 0.4;
const minPrefixLength = 4;

/** Returns the BM25 score of each passage, 0 or more. */
export function wordScores(query: string, passages: readonly Passage[]): readonly number[] {
  const index = new MiniSearch({ fields: ["text", "title"], tokenize: wordsOf, processTerm: (term) => plain(term) });
  index.addAll(passages.map(({ text, title }, id) => ({ id, text, title })));
  const scores = passages.map(() => 0);
  const found = index.search(query, {
    boost: { title: 0.5 },
    prefix: (term) => term.length >= minPrefixLength,
    weights: { prefix: prefixWeight, fuzzy: 0 },
  });
  for (const { id, score } of found) scores[id as number] = score;
  return scores;
}

/**
 * Returns the cosine similarity of each passage's embedding to the query's; -1 for a passage that was not embedded. `bm25`: BM25
 * scores of the passages.
 */
export async function embeddingScores(
  query: string,
  passages: readonly Passage[],
  bm25: readonly number[],
  embed: Embed,
): Promise<readonly number[]> {
  const chosen = [...passages.keys()].sort((a, b) => (bm25[b] as number) - (bm25[a] as number)).slice(0, maxEmbedded);
  const [asked] = await embed([query], "query");
  const vectors = await embed(
    chosen.map((at) => (passages[at] as Passage).text),
    "document",
  );
  const scores = passages.map(() => -1);
  chosen.forEach((at, i) => {
    scores[at] = dot(asked, vectors[i]);
  });
  return scores;
}

function dot(a: Float32Array | undefined, b: Float32Array | undefined): number {
  if (a === undefined || b === undefined) return -1;
  return a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);
}

/** Returns the words of a text. For scripts without spaces between words, returns pairs of characters. */
function wordsOf(text: string): string[] {
  const parts =
    text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]+|[\p{L}\p{N}_]+/gu) ?? [];
  return parts.flatMap((part) =>
    /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u.test(part) ? pairs(part) : [part],
  );
}

function pairs(text: string): string[] {
  const characters = [...text];
  if (characters.length < 2) return characters;
  return characters.slice(1).map((character, i) => `${characters[i]}${character}`);
}

/** Returns a word in lower case without accents; null for a stop word. */
function plain(word: string): string | null {
  const text = word.normalize("NFKD").replaceAll(/\p{M}/gu, "").toLowerCase();
  return stopWords.has(text) ? null : text;
}

const stopWords = new Set(
  "a an and are as at be but by do does for from has have how i if in is it its not of on or that the this to was what when where which who why will with you your".split(
    " ",
  ),
);
