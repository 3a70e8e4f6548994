// Events of a response as they are sent, in chunks of whole events: a few short ones as their text, a long one as what writes
// its text, and those that were stored as bytes.
import { StringDecoder } from "node:string_decoder";
import type { StoredText } from "../../actors/stored-responses.ts";
import { PIECE_LENGTH } from "../json-pieces.ts";

/** Events end in an empty line, which nothing inside them can be. */
const EVENT_END = "\n\n";

export interface EventChunk {
  /** Number of its first event, and of the one that follows its last. */
  readonly first: number;
  readonly next: number;
  /** Characters; of a long event, about. */
  readonly length: number;
  /** The text of its events after number `after`. */
  after(after: number): string | Iterable<string>;
}

export class TextChunk implements EventChunk {
  readonly first: number;
  readonly text: string;

  constructor(first: number, text: string) {
    this.first = first;
    this.text = text;
  }

  get next(): number {
    return this.first + this.text.split(EVENT_END).length - 1;
  }

  get length(): number {
    return this.text.length;
  }

  after(after: number): string {
    let at = 0;
    for (let number = this.first; number <= after && at < this.text.length; number++) {
      const end = this.text.indexOf(EVENT_END, at);
      if (end < 0) return "";
      at = end + EVENT_END.length;
    }
    return at === 0 ? this.text : this.text.slice(at);
  }
}

/** One event whose text is made when it is written. */
export class LongEvent implements EventChunk {
  readonly first: number;
  readonly length: number;
  readonly #pieces: () => Iterable<string>;

  constructor(first: number, length: number, pieces: () => Iterable<string>) {
    this.first = first;
    this.length = length;
    this.#pieces = pieces;
  }

  get next(): number {
    return this.first + 1;
  }

  after(after: number): string | Iterable<string> {
    return after < this.first ? this.#pieces() : "";
  }
}

class StoredChunk implements EventChunk {
  readonly first: number;
  readonly #bytes: Buffer;

  constructor(first: number, { buffer, byteOffset, byteLength }: Uint8Array) {
    this.first = first;
    this.#bytes = Buffer.from(buffer, byteOffset, byteLength);
  }

  get next(): number {
    let number = this.first;
    for (let at = this.#endOf(0); at > 0; at = this.#endOf(at)) number++;
    return number;
  }

  get length(): number {
    return this.#bytes.length;
  }

  *after(after: number): Generator<string> {
    let start = 0;
    for (let number = this.first; number <= after; number++) {
      start = this.#endOf(start);
      if (start === 0) return;
    }
    const decoder = new StringDecoder("utf8");
    for (let at = start; at < this.#bytes.length; at += PIECE_LENGTH) {
      yield decoder.write(this.#bytes.subarray(at, at + PIECE_LENGTH));
    }
  }

  /** Where the event ends that begins at `at`; 0 where none does. */
  #endOf(at: number): number {
    const end = this.#bytes.indexOf(EVENT_END, at);
    return end < 0 ? 0 : end + EVENT_END.length;
  }
}

/** Events that were stored. */
export function storedChunk(first: number, text: StoredText): EventChunk {
  return typeof text === "string" ? new TextChunk(first, text) : new StoredChunk(first, text);
}

/** Texts in a row: as one where all are short, else in pieces. */
export function joinedTexts(texts: readonly (string | Iterable<string>)[]): string | Iterable<string> {
  return texts.every((text) => typeof text === "string") ? texts.join("") : inTurn(texts);
}

function* inTurn(texts: readonly (string | Iterable<string>)[]): Generator<string> {
  for (const text of texts) {
    if (typeof text === "string") yield text;
    else yield* text;
  }
}
