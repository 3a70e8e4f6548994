// Detokenizer: converts the tokens of one sequence to text as they arrive. It is called once per token on the
// generation thread. Most tokens consist of complete characters and cost one array look-up. Incomplete characters are
// never emitted: their bytes are kept until the next token.
import type { TokenTexts } from "./token-texts.ts";

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

const nothing: ReadonlySet<number> = new Set();

export class Detokenizer {
  private readonly texts: TokenTexts;
  private readonly shown: ReadonlySet<number>;
  /** The first bytes of an incomplete character: at most 3. */
  private readonly pending = new Uint8Array(3);
  private pendingLength = 0;
  private dropsSpace: boolean;

  /**
   * `previousToken` is the last token of the prompt; null: there is no prompt. Encoders may add a space before text
   * that is at the start or follows a control token. In these two cases, the leading space of the output is removed.
   * Control tokens in `shown` are emitted as text, by their names.
   */
  constructor(texts: TokenTexts, previousToken: number | null, shown: ReadonlySet<number> = nothing) {
    this.texts = texts;
    this.shown = shown;
    this.dropsSpace = texts.addsSpacePrefix && (previousToken === null || texts.isControl(previousToken));
  }

  /** Returns the text that this token completes, which may be "". */
  push(token: number): string {
    if (this.shown.has(token)) return this.pushName(token);
    const whole = this.pendingLength === 0 ? this.texts.pieceText(token) : null;
    const text = whole ?? this.pushBytes(this.texts.piece(token));
    if (!this.dropsSpace || text === "") return text;
    this.dropsSpace = false;
    return text.startsWith(" ") ? text.slice(1) : text;
  }

  /** Returns the text of the remaining bytes: U+FFFD for an incomplete character. */
  flush(): string {
    const text = decoder.decode(this.pending.subarray(0, this.pendingLength));
    this.pendingLength = 0;
    return text;
  }

  /** Emits the name of a control token. An incomplete character before it is emitted as U+FFFD. */
  private pushName(token: number): string {
    const cut = this.flush();
    this.dropsSpace = this.texts.addsSpacePrefix;
    return cut + this.texts.tokenText(token);
  }

  private pushBytes(piece: Uint8Array): string {
    const bytes = new Uint8Array(this.pendingLength + piece.length);
    bytes.set(this.pending.subarray(0, this.pendingLength));
    bytes.set(piece, this.pendingLength);
    const end = bytes.length - unfinishedLength(bytes);
    this.pending.set(bytes.subarray(end));
    this.pendingLength = bytes.length - end;
    return decoder.decode(bytes.subarray(0, end));
  }
}

/** Returns the number of bytes at the end that form an incomplete character. */
function unfinishedLength(bytes: Uint8Array): number {
  for (let length = 1; length <= 3 && length <= bytes.length; length++) {
    const lead = bytes[bytes.length - length] as number;
    if (lead < 0x80) return 0;
    if (lead < 0xc0) continue;
    return lead < 0xf5 && length < characterLength(lead) && isValidSecond(lead, bytes[bytes.length - length + 1])
      ? length
      : 0;
  }
  return 0;
}

function characterLength(lead: number): number {
  if (lead < 0xc2) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

/**
 * True if `second` may follow the first byte. UTF-8 forbids overlong forms, surrogates and code points above U+10FFFF,
 * so some first bytes restrict the second byte.
 */
function isValidSecond(lead: number, second: number | undefined): boolean {
  if (second === undefined) return true;
  if (lead === 0xe0) return second >= 0xa0;
  if (lead === 0xed) return second < 0xa0;
  if (lead === 0xf0) return second >= 0x90;
  if (lead === 0xf4) return second < 0x90;
  return true;
}
