// Pieces: the output bytes of each token, in one table for the whole vocabulary. If the bytes of a piece are complete
// characters, the piece also has a text. Read once per token on the hot path.
import { writeSpelledBytes } from "./byte-alphabet.ts";
import { spaceSymbol } from "./encoding/encoders.ts";
import { byteOfToken, type TokenKind } from "./token-kinds.ts";

/**
 * Encoding of a normal token's bytes in its name: one character per byte ("bytes"), or the text itself with U+2581 for
 * a space ("spaces").
 */
export type Spelling = "bytes" | "spaces";

/** Pieces of all tokens, concatenated: token t's piece is bytes[ends[t - 1] .. ends[t]). Read-only. */
export interface Pieces {
  readonly bytes: Uint8Array;
  readonly ends: Int32Array;
}

export class PieceTable implements Pieces {
  readonly bytes: Buffer;
  readonly ends: Int32Array;
  private readonly texts: (string | null | undefined)[];

  constructor({ bytes, ends }: Pieces) {
    this.bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.ends = ends;
    this.texts = new Array(ends.length);
  }

  /** Returns a read-only view of the token's bytes. It is empty for a token outside the vocabulary. */
  piece(token: number): Buffer {
    if (token >= this.ends.length) return nothing;
    return this.bytes.subarray(token === 0 ? 0 : this.ends[token - 1], this.ends[token]);
  }

  /** Returns a token's piece (output bytes) as text; null if the bytes are not complete characters. Decoded on first use. */
  text(token: number): string | null {
    const known = this.texts[token];
    if (known !== undefined) return known;
    const piece = this.piece(token);
    const text = piece.toString("utf8");
    const isWhole = Buffer.byteLength(text, "utf8") === piece.length && !text.includes("\ufffd");
    const kept = isWhole ? text : null;
    this.texts[token] = kept;
    return kept;
  }

  /** Returns the tokens whose piece (output bytes) contains the bytes of `text`. */
  containing(text: string): Int32Array {
    const wanted = Buffer.from(text, "utf8");
    if (wanted.length === 0) return new Int32Array(0);
    const tokens: number[] = [];
    let token = 0;
    for (let at = this.bytes.indexOf(wanted); at >= 0; ) {
      while ((this.ends[token] as number) <= at) token++;
      const end = this.ends[token] as number;
      const isInside = at + wanted.length <= end;
      if (isInside) tokens.push(token);
      at = this.bytes.indexOf(wanted, isInside ? end : at + 1);
    }
    return Int32Array.from(tokens);
  }
}

const nothing = Buffer.alloc(0);

/** Maximum number of UTF-8 bytes per UTF-16 code unit. */
const maxUnitBytes = 3;

/** Builds the table of the pieces (output bytes) of all tokens, from the names and kinds of the tokens. */
export function piecesOf(names: readonly string[], kinds: readonly TokenKind[], spelling: Spelling): Pieces {
  const units = names.reduce((sum, { length }) => sum + length, 0);
  const bytes = Buffer.allocUnsafe(maxUnitBytes * units);
  let end = 0;
  const ends = Int32Array.from(names, (name, token) => {
    end = writePiece(name, kinds[token], spelling, bytes, end);
    return end;
  });
  return { bytes: Buffer.from(bytes.subarray(0, end)), ends };
}

/**
 * Returns the length of the longest piece in bytes. Names of control tokens count too, because the text of a prompt
 * contains the whole name of each control token.
 */
export function longestPiece({ ends }: Pieces, names: readonly string[]): number {
  let longest = 1;
  names.forEach((name, token) => {
    const start = token === 0 ? 0 : (ends[token - 1] as number);
    longest = Math.max(longest, (ends[token] as number) - start, Buffer.byteLength(name, "utf8"));
  });
  return longest;
}

/** Writes the piece (output bytes) of a token to `to` and returns the end of the written bytes. */
function writePiece(name: string, kind: TokenKind | undefined, spelling: Spelling, to: Buffer, start: number): number {
  if (kind === "user-defined" || kind === "shown-control") return start + to.write(name, start);
  if (kind === "byte") return to.writeUInt8(byteOfToken(name), start);
  if (kind !== "normal") return start;
  if (spelling === "bytes") return writeSpelledBytes(name, to, start);
  return start + to.write(name.includes(spaceSymbol) ? name.replaceAll(spaceSymbol, " ") : name, start);
}
