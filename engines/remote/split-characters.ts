// Split characters: finds the ids of tokens that llama-server leaves out of a stream. While the last token ends within a UTF-8 character,
// llama-server sends no event. The next event contains the bytes of all tokens since the previous event, but only the id of the last one.
import type { TokenTexts } from "../text/tokenizer/token-texts.ts";

/** Maximum length in bytes of a token that llama-server left out of the stream; longer tokens are not considered. */
const maxPieceBytes = 16;
/** Maximum number of tokens that llama-server left out before one event. Each ends within a character, which has at most 4 bytes. */
const maxMissing = 8;

export class SplitCharacters {
  readonly #texts: Pick<TokenTexts, "piece" | "isControl">;
  readonly #size: number;
  /** Token ids by the tokens' bytes (as Latin-1 strings); null until first needed. */
  #tokens: ReadonlyMap<string, number> | null = null;

  constructor(texts: Pick<TokenTexts, "piece" | "isControl">, size: number) {
    this.#texts = texts;
    this.#size = size;
  }

  /**
   * Finds `count` tokens whose bytes, followed by the bytes of token `last`, are the UTF-8 bytes of `content`. Returns null if there are
   * none. If several splits are possible, returns any of them, because all have the same text.
   */
  find(content: string, last: number, count: number): readonly number[] | null {
    if (count > maxMissing) return null;
    const bytes = Buffer.from(content);
    const tail = this.#texts.piece(last);
    const length = bytes.length - tail.length;
    if (length < count || !bytes.subarray(length).equals(tail)) return null;
    return this.#split(bytes.toString("latin1", 0, length), count);
  }

  /** Splits bytes into exactly `count` tokens, trying longer tokens first. Returns null if that is impossible. */
  #split(bytes: string, count: number): readonly number[] | null {
    if (count === 0) return bytes === "" ? [] : null;
    const tokens = this.#byBytes();
    for (let length = Math.min(bytes.length - count + 1, maxPieceBytes); length > 0; length--) {
      const token = tokens.get(bytes.slice(0, length));
      const rest = token === undefined ? null : this.#split(bytes.slice(length), count - 1);
      if (token !== undefined && rest !== null) return [token, ...rest];
    }
    return null;
  }

  #byBytes(): ReadonlyMap<string, number> {
    if (this.#tokens !== null) return this.#tokens;
    const tokens = new Map<string, number>();
    for (let token = this.#size - 1; token >= 0; token--) {
      const piece = this.#texts.piece(token);
      if (this.#texts.isControl(token) || piece.length === 0 || piece.length > maxPieceBytes) continue;
      tokens.set(Buffer.from(piece.buffer, piece.byteOffset, piece.length).toString("latin1"), token);
    }
    this.#tokens = tokens;
    return tokens;
  }
}
