// Token texts of a vocabulary, in memory that threads share. The text worker that reads the vocabulary creates them.
// The generation thread uses them to convert tokens to text, and the main thread uses them for logprobs.
import assert from "node:assert";
import { maxVocabulary } from "../../logprobs.ts";
import { type Pieces, PieceTable } from "./pieces.ts";

/** Token texts for logprobs. */
export interface ShownTokens {
  /** Returns the output bytes of a token as a read-only view; empty for a control token. */
  piece(token: number): Uint8Array;
  /** Returns a token's text: the name of a control token; U+FFFD for invalid UTF-8. */
  tokenText(token: number): string;
}

/** Token texts for output. */
export interface TokenTexts extends ShownTokens {
  /** True if encoding adds a space before text that follows a control token, so decoding must remove it. */
  readonly addsSpacePrefix: boolean;
  isControl(token: number): boolean;
  /** Returns a token's piece (output bytes) as text; null if the bytes are not complete characters. */
  pieceText(token: number): string | null;
}

/** Token texts as plain data. Sending them to another thread does not copy the pieces. */
export interface TokenTextTable {
  readonly pieces: Pieces;
  /** Names of the control tokens, by id. Control tokens have no output bytes. */
  readonly controlNames: ReadonlyMap<number, string>;
  readonly addsSpacePrefix: boolean;
}

export interface TabledVocabulary extends TokenTexts {
  readonly size: number;
  /** Ids of the control tokens. */
  readonly controlTokens: readonly number[];
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
