// Writing of long answers: at the pace of their readers, and with other work of the thread between two pieces.
import type { StreamSink } from "./edge.ts";

export type Piece = string | Uint8Array;

/**
 * A server underneath may close a connection on which nothing moves (uWS does, after 8 seconds), and how long a reader
 * may stall is for `readerStallMs` to say.
 */
const keepOpenMs = 4000;

/** Writes a piece; settles when the next one may be written. A reader that stays stalled is cut off. */
export async function writePiece(sink: StreamSink, piece: Piece, readerStallMs: number): Promise<void> {
  if (!sink.write(piece)) await drained(sink, readerStallMs);
  await turns.next();
}

/** Waits until a stream may be written to again; a reader that stays stalled is cut off. */
export async function drained(sink: StreamSink, readerStallMs: number): Promise<void> {
  const stalled = setTimeout(() => sink.abort(), readerStallMs);
  const keeping = setInterval(() => sink.keepOpen(), keepOpenMs);
  await sink.drained();
  clearTimeout(stalled);
  clearInterval(keeping);
}

/**
 * Lets those that write go on one after the other, one in each turn of the event loop: what a hundred of them have to write is
 * there at once, and would be written at once.
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
