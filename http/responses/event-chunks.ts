// Event chunks: the events of a response as they are sent, in chunks of whole events. Short events are kept as text; a long one
// is kept as a function that writes its text.

/** Events end in an empty line, which nothing inside them can be. */
const EVENT_END = "\n\n";

export interface EventChunk {
  /** Number of its first event, and of the one that follows its last. */
  readonly first: number;
  readonly next: number;
  /** Characters; an estimate for a long event. */
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
