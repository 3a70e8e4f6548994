// Event chunks: the sent events of a response in chunks of whole events. Short events are text; a long event is a function that
// generates its text.
import { gathered, PIECE_LENGTH, textPieces } from "../../shared/answer/json-pieces.ts";

/** An event ends with an empty line, which its data cannot contain. */
const EVENT_END = "\n\n";

export interface EventChunk {
  /** Numbers of its first event and of the event after its last. */
  readonly first: number;
  readonly next: number;
  /** Characters; an estimate for a long event. */
  readonly length: number;
  /** The text of its events with numbers above `after`. */
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

/** One event whose text is generated when it is sent. */
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

/**
 * The events of chunks with numbers above `after`, then `end`: one string if short, else pieces generated while they are sent,
 * so that no reader has a copy of a long log.
 */
export function textOf(chunks: readonly EventChunk[], after = -1, end = ""): string | Iterable<string> {
  let text = "";
  const first = chunkOf(chunks, after + 1);
  for (let i = first; i < chunks.length; i++) {
    const own = (chunks[i] as EventChunk).after(after);
    if (typeof own !== "string" || text.length + own.length > PIECE_LENGTH) {
      return gathered(fragmentsOf(chunks, first, after, end));
    }
    text += own;
  }
  return text + end;
}

function* fragmentsOf(chunks: readonly EventChunk[], first: number, after: number, end: string): Generator<string> {
  for (let i = first; i < chunks.length; i++) {
    const text = (chunks[i] as EventChunk).after(after);
    yield* typeof text === "string" ? textPieces(text) : text;
  }
  yield end;
}

/** Index of the last chunk that starts at or before event `number`; 0 if there is none. Binary search. */
function chunkOf(chunks: readonly EventChunk[], number: number): number {
  let low = 0;
  let high = chunks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((chunks[middle] as EventChunk).first <= number) low = middle + 1;
    else high = middle;
  }
  return Math.max(low - 1, 0);
}
