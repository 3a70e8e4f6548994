// Texts and bytes of a vocabulary's tokens in memory that threads share: made where the vocabulary is, read where answers are
// written.
import assert from "node:assert";
import { maxVocabulary } from "../logprobs.ts";
import type { Pieces } from "./pieces.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Plain data; sending it to another thread does not copy the pieces. */
export interface TokenTextTable {
  readonly pieces: Pieces;
  /** Texts of control tokens, which are no bytes of an answer. */
  readonly controlNames: ReadonlyMap<number, string>;
}

/** What the writer of logprobs knows of a model's tokens. */
export interface TokenTexts {
  /** As Vocabulary.tokenText. */
  text(token: number): string;
  /** As Vocabulary.piece: a view, not to be changed. */
  bytes(token: number): Uint8Array;
}

export function tokenTextTable(vocabulary: Vocabulary): TokenTextTable {
  const { size, controlTokens, pieces } = vocabulary;
  assert(size <= maxVocabulary, `a vocabulary has at most ${maxVocabulary} tokens, not ${size}`);
  const bytes = new Uint8Array(new SharedArrayBuffer(pieces.bytes.byteLength));
  bytes.set(pieces.bytes);
  const ends = new Int32Array(new SharedArrayBuffer(pieces.ends.byteLength));
  ends.set(pieces.ends);
  const controlNames = new Map(controlTokens.map((token) => [token, vocabulary.tokenText(token)] as const));
  return { pieces: { bytes, ends }, controlNames };
}

export class SharedTokenTexts implements TokenTexts {
  readonly #bytes: Buffer;
  readonly #ends: Int32Array;
  readonly #controlNames: ReadonlyMap<number, string>;

  constructor({ pieces: { bytes, ends }, controlNames }: TokenTextTable) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#ends = ends;
    this.#controlNames = controlNames;
  }

  text(token: number): string {
    return this.#controlNames.get(token) ?? this.bytes(token).toString("utf8");
  }

  bytes(token: number): Buffer {
    if (token >= this.#ends.length) return nothing;
    return this.#bytes.subarray(token === 0 ? 0 : this.#ends[token - 1], this.#ends[token]);
  }
}

const nothing = Buffer.alloc(0);
