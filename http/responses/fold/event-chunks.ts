// Event chunks: the stream events of a response, in chunks of complete events. Short events are stored as text; a long event is
// stored as a function that generates its text.
import { gathered, PIECE_LENGTH, textPieces } from "../../shared/answer/json-pieces.ts";

/** Empty line that ends an event. The data of an event cannot contain it. */
const EVENT_END = "\n\n";

export interface EventChunk {
  /** Sequence number of the chunk's first event. `next`: sequence number of the event that follows the chunk. */
  readonly first: number;
  readonly next: number;
  /** Length of the text in characters; estimated for a long event. */
  readonly length: number;
  /** Returns the text of the chunk's events with a sequence number above `after`. */
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

/** Chunk with one long event, whose text is generated while it is sent. */
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
 * Returns the text of the events with a sequence number above `after`, followed by `end`. A short result is one string. A long
 * result is generated piece by piece while it is sent, so that no reader needs a copy of a long log.
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

/** Yields the text of the chunks in pieces. */
export function* piecesOf(chunks: readonly EventChunk[]): Generator<string> {
  const text = textOf(chunks);
  if (typeof text === "string") yield text;
  else yield* text;
}

function* fragmentsOf(chunks: readonly EventChunk[], first: number, after: number, end: string): Generator<string> {
  for (let i = first; i < chunks.length; i++) {
    const text = (chunks[i] as EventChunk).after(after);
    yield* typeof text === "string" ? textPieces(text) : text;
  }
  yield end;
}

/** Returns the index of the last chunk that begins at or before event `number` (binary search); 0 if there is none. */
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
