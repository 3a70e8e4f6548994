// Texts and bytes of a vocabulary's tokens in memory that threads share: made where the vocabulary is, read where answers are
// written.
import assert from "node:assert";
import { maxVocabulary } from "../logprobs.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Plain data; sending it to another thread copies neither the pieces nor their ends. */
export interface TokenTextTable {
  /** The pieces of all tokens, one behind another. */
  readonly pieces: Uint8Array;
  /** Token t's piece is pieces[ends[t - 1] .. ends[t]). */
  readonly ends: Int32Array;
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
  const { size, controlTokens } = vocabulary;
  assert(size <= maxVocabulary, `a vocabulary has at most ${maxVocabulary} tokens, not ${size}`);
  const ends = new Int32Array(new SharedArrayBuffer(size * Int32Array.BYTES_PER_ELEMENT));
  let end = 0;
  for (let token = 0; token < size; token++) {
    end += vocabulary.piece(token).length;
    ends[token] = end;
  }
  const pieces = new Uint8Array(new SharedArrayBuffer(end));
  for (let token = 0; token < size; token++) {
    const piece = vocabulary.piece(token);
    pieces.set(piece, (ends[token] as number) - piece.length);
  }
  const controlNames = new Map(controlTokens.map((token) => [token, vocabulary.tokenText(token)] as const));
  return { pieces, ends, controlNames };
}

export class SharedTokenTexts implements TokenTexts {
  readonly #pieces: Buffer;
  readonly #ends: Int32Array;
  readonly #controlNames: ReadonlyMap<number, string>;

  constructor({ pieces, ends, controlNames }: TokenTextTable) {
    this.#pieces = Buffer.from(pieces.buffer, pieces.byteOffset, pieces.byteLength);
    this.#ends = ends;
    this.#controlNames = controlNames;
  }

  text(token: number): string {
    return this.#controlNames.get(token) ?? this.bytes(token).toString("utf8");
  }

  bytes(token: number): Buffer {
    if (token >= this.#ends.length) return nothing;
    return this.#pieces.subarray(token === 0 ? 0 : this.#ends[token - 1], this.#ends[token]);
  }
}

const nothing = Buffer.alloc(0);
