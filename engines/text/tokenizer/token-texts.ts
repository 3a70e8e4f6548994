// Texts of a vocabulary's tokens, in memory that threads share. Created on the text worker that reads the vocabulary; used by
// the generation thread (tokens to text) and the main thread (logprobs).
import assert from "node:assert";
import { maxVocabulary } from "../../logprobs.ts";
import { type Pieces, PieceTable } from "./pieces.ts";

/** Token texts for logprobs. */
export interface ShownTokens {
  /** The output bytes of a token; empty for a control token. A read-only view. */
  piece(token: number): Uint8Array;
  /** A token's text: the name of a control token, U+FFFD for invalid UTF-8. */
  tokenText(token: number): string;
}

/** Token texts for output. */
export interface TokenTexts extends ShownTokens {
  /** Encoding adds a space before text after a control token, so decoding removes it. */
  readonly addsSpacePrefix: boolean;
  isControl(token: number): boolean;
  /** A token's piece as text, or null if its bytes are not whole characters. */
  pieceText(token: number): string | null;
}

/** Plain data; sending it to another thread does not copy the pieces. */
export interface TokenTextTable {
  readonly pieces: Pieces;
  /** Texts of control tokens; they have no output bytes. */
  readonly controlNames: ReadonlyMap<number, string>;
  readonly addsSpacePrefix: boolean;
}

export interface TabledVocabulary extends TokenTexts {
  readonly size: number;
  /** Tokens that are structure, not text. */
  readonly controlTokens: readonly number[];
  /** The pieces of all tokens. */
  readonly pieces: Pieces;
}

export function tokenTextTable(vocabulary: TabledVocabulary): TokenTextTable {
  const { size, controlTokens, pieces, addsSpacePrefix } = vocabulary;
  assert(size <= maxVocabulary, `a vocabulary has at most ${maxVocabulary} tokens, not ${size}`);
  const bytes = new Uint8Array(new SharedArrayBuffer(pieces.bytes.byteLength));
  bytes.set(pieces.bytes);
  const ends = new Int32Array(new SharedArrayBuffer(pieces.ends.byteLength));
  ends.set(pieces.ends);
  const controlNames = new Map(controlTokens.map((token) => [token, vocabulary.tokenText(token)] as const));
  return { pieces: { bytes, ends }, controlNames, addsSpacePrefix };
}

export class SharedTokenTexts implements TokenTexts {
  readonly addsSpacePrefix: boolean;
  readonly #pieces: PieceTable;
  readonly #controlNames: ReadonlyMap<number, string>;

  constructor({ pieces, controlNames, addsSpacePrefix }: TokenTextTable) {
    this.addsSpacePrefix = addsSpacePrefix;
    this.#pieces = new PieceTable(pieces);
    this.#controlNames = controlNames;
  }

  isControl(token: number): boolean {
    return this.#controlNames.has(token);
  }

  piece(token: number): Buffer {
    return this.#pieces.piece(token);
  }

  pieceText(token: number): string | null {
    return this.#pieces.text(token);
  }

  tokenText(token: number): string {
    return this.#controlNames.get(token) ?? this.pieceText(token) ?? this.piece(token).toString("utf8");
  }
}
