// Writer of long responses: writes as fast as the client reads, and yields to the event loop between pieces.
import type { StreamSink } from "./edge.ts";

export type Piece = string | Uint8Array;

/**
 * Interval in ms at which keepOpen is called for a stalled reader. Without it, uWS would close the connection after 8 idle
 * seconds, even if `readerStallMs` is longer.
 */
const keepOpenMs = 4000;

/** Writes a piece. Resolves when the next piece may be written. Disconnects a client that stops reading for `readerStallMs`. */
export async function writePiece(sink: StreamSink, piece: Piece, readerStallMs: number): Promise<void> {
  if (!sink.write(piece)) await drained(sink, readerStallMs);
  await turns.next();
}

/** Waits until a stream is writable. Disconnects a client that stops reading for `readerStallMs`. */
export async function drained(sink: StreamSink, readerStallMs: number): Promise<void> {
  const stalled = setTimeout(() => sink.abort(), readerStallMs);
  const keeping = setInterval(() => sink.keepOpen(), keepOpenMs);
  await sink.drained();
  clearTimeout(stalled);
  clearInterval(keeping);
}

/**
 * Queue of waiting writers. It resumes one writer per turn of the event loop. Otherwise, a hundred responses that are ready at
 * the same time would all be written in one turn.
 */
class Turns {
  #waiting: (() => void)[] = [];

  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === 1) setImmediate(this.#serve);
    });
  }

  readonly #serve = (): void => {
    this.#waiting.shift()?.();
    if (this.#waiting.length > 0) setImmediate(this.#serve);
  };
}

const turns = new Turns();
