// Unigram encoder ("t5" vocabularies): cuts a text into the pieces with the highest sum of scores. The text is first
// normalized by unigram-text.ts. Takes time linear in the length of the text. Created by encoding-plan.ts.
import { ServerError } from "../../../../runtime/errors.ts";
import { absent, ByteTrie } from "../byte-trie.ts";
import type { TokenKind } from "../token-kinds.ts";
import type { Encoder } from "./encoders.ts";
import { characterBytes, type Normalizer } from "./unigram-text.ts";

/** Difference between the lowest score of any piece and the score of an unknown character. */
const unknownPenalty = 10;

interface UnigramPieces {
  readonly tokens: readonly string[];
  readonly kinds: readonly TokenKind[];
  readonly scores: readonly number[] | null;
  /** Token for characters without a piece. Neighbouring characters without a piece become a single token. */
  readonly unknown: number;
}

export function unigramEncoder(pieces: UnigramPieces, normalize: Normalizer): Encoder {
  const lattice = new Lattice(pieces);
  return (text, output) => {
    const bytes = normalize(Buffer.from(text, "utf8"));
    if (bytes.length > 0) lattice.encode(bytes, output);
  };
}

/** Returns a function that cuts a normalized word into pieces. */
export function unigramWords(pieces: UnigramPieces): (word: string) => number[] {
  const lattice = new Lattice(pieces);
  return (word) => {
    const tokens: number[] = [];
    lattice.encode(Buffer.from(word, "utf8"), tokens);
    return tokens;
  };
}

class Lattice {
  readonly #trie = new ByteTrie();
  /** Scores by token. User-defined pieces have score 0. */
  readonly #scores: Float64Array;
  readonly #unknown: number;
  readonly #unknownScore: number;

  constructor({ tokens, kinds, scores, unknown }: UnigramPieces) {
    if (scores === null) {
      throw new ServerError(
        "model_file_invalid",
        'a "t5" vocabulary needs tokenizer.ggml.scores, but the file has none; convert the model again',
      );
    }
    this.#unknown = unknown;
    this.#scores = Float64Array.from(tokens, (_, token) =>
      kinds[token] === "user-defined" ? 0 : (scores[token] ?? 0),
    );
    let worst = Number.POSITIVE_INFINITY;
    kinds.forEach((kind, token) => {
      if (kind === "normal") worst = Math.min(worst, this.#scores[token] as number);
      if (kind === "normal" || kind === "user-defined" || kind === "unused") {
        this.#trie.add(Buffer.from(tokens[token] as string, "utf8"), token);
      }
    });
    // The score is rounded to a 32-bit float, because llama.cpp's scores are 32-bit floats. Only their sums are
    // doubles.
    this.#unknownScore = Math.fround(worst - unknownPenalty);
  }

  encode(bytes: Uint8Array, output: number[]): void {
    // The best segmentation up to each byte position: the sum of its scores, its last token, and the start of that
    // token.
    const sums = new Float64Array(bytes.length + 1).fill(-Number.MAX_VALUE);
    const tokens = new Int32Array(bytes.length + 1).fill(this.#unknown);
    const starts = new Int32Array(bytes.length + 1);
    sums[0] = 0;
    for (let start = 0; start < bytes.length; ) {
      const next = Math.min(start + characterBytes(bytes[start] as number), bytes.length);
      if (!this.#offer(bytes, start, next, { sums, tokens, starts })) {
        const sum = (sums[start] as number) + this.#unknownScore;
        if (sum > (sums[next] as number)) {
          sums[next] = sum;
          tokens[next] = this.#unknown;
          starts[next] = start;
        }
      }
      start = next;
    }
    this.#collect(tokens, starts, output);
  }

  /**
   * Updates the best segmentations with every piece that begins at `start`. Returns true if one of these pieces is the
   * single character that ends at `next`.
   */
  #offer(bytes: Uint8Array, start: number, next: number, { sums, tokens, starts }: Best): boolean {
    const trie = this.#trie;
    const before = sums[start] as number;
    let isKnown = false;
    for (let node = 0, end = start; end < bytes.length; ) {
      node = trie.child(node, bytes[end++] as number);
      if (node === absent) break;
      const token = trie.value(node);
      if (token === absent) continue;
      isKnown ||= end === next;
      const sum = before + (this.#scores[token] as number);
      if (sum <= (sums[end] as number)) continue;
      sums[end] = sum;
      tokens[end] = token;
      starts[end] = start;
    }
    return isKnown;
  }

  #collect(tokens: Int32Array, starts: Int32Array, output: number[]): void {
    const reversed: number[] = [];
    for (let end = starts.length - 1; end > 0; end = starts[end] as number) {
      const token = tokens[end] as number;
      if (token !== this.#unknown || reversed.at(-1) !== token) reversed.push(token);
    }
    for (let i = reversed.length - 1; i >= 0; i--) output.push(reversed[i] as number);
  }
}

interface Best {
  readonly sums: Float64Array;
  readonly tokens: Int32Array;
  readonly starts: Int32Array;
}
