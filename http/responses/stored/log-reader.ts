// Log reader: reads an event log for the loop that sends streams (sse.ts). An empty batch tells the loop to call `encode` for
// new events. Created by event-log.ts.
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { StreamCodec } from "../../sse.ts";
import { type EventChunk, textOf } from "../fold/event-chunks.ts";
import { DONE } from "../fold/event-text.ts";
import { wireError } from "../fold/resource.ts";

/** Interface of the event log for its readers. */
export interface ReadableLog {
  /** Number of the first chunk that is still kept. */
  readonly firstChunk: number;
  readonly isClosed: boolean;
  /** Returns the chunks from number `at`. Throws reader_stalled if they are no longer kept. */
  chunksFrom(at: number): readonly EventChunk[];
  listen(listener: () => void): void;
  unlisten(listener: () => void): void;
  entered(): void;
  left(reader: LogReader): void;
}

export class LogReader implements StreamCodec {
  readonly #log: ReadableLog;
  readonly #after: number;
  readonly #aborted: AbortSignal;
  #next: number;
  /** Last chunk returned by this reader. */
  #last: EventChunk | null = null;
  #isEnded = false;

  constructor(log: ReadableLog, after: number, aborted: AbortSignal) {
    this.#log = log;
    this.#after = after;
    this.#aborted = aborted;
    this.#next = log.firstChunk;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Number of the next chunk to read. */
  get nextChunk(): number {
    return this.#next;
  }

  async *batches(): AsyncGenerator<readonly never[]> {
    const bell = new Bell();
    this.#log.entered();
    this.#log.listen(bell.ring);
    this.#aborted.addEventListener("abort", bell.ring);
    try {
      while (!this.#aborted.aborted) {
        yield [];
        if (!this.#isEnded) await bell.rung();
      }
    } finally {
      this.#log.unlisten(bell.ring);
      this.#aborted.removeEventListener("abort", bell.ring);
      this.#log.left(this);
    }
  }

  encode(): string | Iterable<string> {
    const isLast = this.#log.isClosed;
    const chunks = this.#log.chunksFrom(this.#next);
    this.#next += chunks.length;
    this.#last = chunks.at(-1) ?? this.#last;
    this.#isEnded = isLast;
    return textOf(chunks, this.#after, isLast ? DONE : "");
  }

  /** Ends the stream of this reader with an error. The response itself continues. */
  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    const { code, message, param } = error;
    const data = {
      type: "error",
      sequence_number: this.#nextNumber(),
      code,
      message,
      param: param ?? null,
      error: wireError(error),
    };
    return `event: error\ndata: ${JSON.stringify(data)}\n\n${DONE}`;
  }

  #nextNumber(): number {
    return Math.max(this.#last?.next ?? 0, this.#after + 1);
  }
}

/** Wake-up signal for one waiter. If it rings while nothing waits, the next wait returns at once. */
class Bell {
  #hasRung = false;
  #wake: (() => void) | null = null;

  readonly ring = (): void => {
    this.#hasRung = true;
    this.#wake?.();
  };

  async rung(): Promise<void> {
    if (!this.#hasRung) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#wake = null;
    this.#hasRung = false;
  }
}
