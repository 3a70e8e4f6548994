// Writing of long answers: at the pace of their readers, and with other work of the thread between two pieces.
import type { StreamSink } from "./edge.ts";

export type Piece = string | Uint8Array;

/**
 * How often the connection of a stalled reader is kept open: uWS closes a connection that is idle for 8 s, but `readerStallMs`
 * decides how long a reader may stall.
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
 * Lets one writer go on in each turn of the event loop. Otherwise a hundred answers that are ready at the same time would all
 * be written in one turn.
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
