// Bounded text: the output of a process. Beyond its limit, the beginning and the end are kept and the middle is counted.
import { StringDecoder } from "node:string_decoder";

export class BoundedText {
  readonly #decoder = new StringDecoder("utf8");
  readonly #half: number;
  #head = "";
  #tail = "";
  #omitted = 0;

  /** `limit`: maximum number of characters. */
  constructor(limit: number) {
    this.#half = Math.max(1, Math.floor(limit / 2));
  }

  add(bytes: Buffer): void {
    this.#append(this.#decoder.write(bytes));
  }

  /** Returns the text, with a note in place of what was left out. */
  get text(): string {
    if (this.#omitted === 0) return this.#head + this.#tail;
    return `${this.#head}\n[${this.#omitted} characters left out]\n${this.#tail}`;
  }

  #append(text: string): void {
    let rest = text;
    const room = this.#half - this.#head.length;
    if (room > 0 && this.#tail === "") {
      this.#head += rest.slice(0, room);
      rest = rest.slice(room);
    }
    if (rest === "") return;
    const tail = this.#tail + rest;
    const excess = tail.length - this.#half;
    this.#omitted += Math.max(excess, 0);
    this.#tail = excess > 0 ? tail.slice(excess) : tail;
  }
}

/** Returns a text of at most `limit` characters: its beginning and end, with a note of what was left out. */
export function boundedText(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const half = Math.floor(limit / 2);
  return `${text.slice(0, half)}\n[${text.length - 2 * half} characters left out]\n${text.slice(-half)}`;
}
