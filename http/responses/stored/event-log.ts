// Event log: the events of a background response as text, for clients that connect and disconnect. Its size is limited: the
// oldest events are dropped, except events that the client that created the response has not read yet.
import { type ErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import type { StreamCodec } from "../../sse.ts";
import { type EventChunk, textOf } from "../fold/event-chunks.ts";
import { DONE } from "../fold/event-text.ts";
import { wireError } from "../fold/resource.ts";

const MAX_LENGTH = 8 * 2 ** 20;

export class EventLog {
  readonly #maxLength: number;
  readonly #lease: AnswerLease | null;
  readonly #held: () => Promise<unknown> | null;
  /** Functions to call when chunks are added and when the log closes. */
  readonly #listeners = new Set<() => void>();
  #chunks: EventChunk[] = [];
  /** Number of chunks dropped from the start. */
  #droppedCount = 0;
  #length = 0;
  #isClosed = false;
  #failure: ServerError | null = null;
  /** Reader of the client that created the response; null if it has left. Chunks that it has not read are not dropped. */
  #creator: LogReader | null = null;

  /**
   * `maxLength`: maximum characters of the log. `lease`: counts the memory of long events; null: the memory is not counted.
   * `held`: returns a promise to wait for before the last events are sent; null: nothing to wait for.
   */
  constructor(
    maxLength: number = MAX_LENGTH,
    lease: AnswerLease | null = null,
    held: () => Promise<unknown> | null = () => null,
  ) {
    this.#maxLength = maxLength;
    this.#lease = lease;
    this.#held = held;
  }

  append(chunk: EventChunk): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    this.#trim();
    this.#wake();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  /** Ends the streams of all readers with an error. Used if the response does not end on this server. */
  break(failure: ServerError): void {
    this.#failure = failure;
    this.#wake();
  }

  get isBroken(): boolean {
    return this.#failure !== null;
  }

  /** Returns the newest chunks that fit the size limit, for the store. */
  kept(): readonly EventChunk[] {
    return this.#chunks.slice(this.#droppable(this.#chunks.length));
  }

  /** Creates a reader of the events after event number `after`. Throws not_found if the next event has been dropped. */
  reader(after: number, aborted: AbortSignal): LogReader {
    checkStart(after, this.#chunks[0]?.first ?? 0);
    return new LogReader(this, after, aborted);
  }

  /**
   * Creates the reader of the client that created the response. It reads from the first event. Chunks that it has not read are
   * kept even above the size limit, because the first events alone may exceed the limit. The excess is dropped when the reader
   * leaves. A client that stops reading is disconnected.
   */
  creatorReader(aborted: AbortSignal): LogReader {
    const reader = this.reader(-1, aborted);
    this.#creator = reader;
    return reader;
  }

  /**
   * Called by a reader that begins; a reader that ends calls `left`. Retains the lease, so that the memory of the log stays
   * counted while the reader reads.
   */
  entered(): void {
    this.#lease?.retain();
  }

  /**
   * Called by a reader that ends. Releases the lease that `entered` retained. If the reader belongs to the client that created
   * the response, drops the chunks above the size limit.
   */
  left(reader: LogReader): void {
    this.#lease?.release();
    if (reader !== this.#creator) return;
    this.#creator = null;
    this.#trim();
  }

  /**
   * Returns the chunks from chunk number `at` on. Throws reader_stalled if they have been dropped, or the error passed to
   * `break`.
   */
  chunksFrom(at: number): readonly EventChunk[] {
    if (this.#failure !== null) throw this.#failure;
    if (at < this.#droppedCount) {
      throw new ServerError(
        "reader_stalled",
        "the events were read more slowly than they were generated, and have been dropped",
      );
    }
    return this.#chunks.slice(at - this.#droppedCount);
  }

  listen(listener: () => void): void {
    this.#listeners.add(listener);
  }

  unlisten(listener: () => void): void {
    this.#listeners.delete(listener);
  }

  held(): Promise<unknown> | null {
    return this.#isClosed ? this.#held() : null;
  }

  get firstChunk(): number {
    return this.#droppedCount;
  }

  /** Chunk number that the next added chunk will get. */
  get endChunk(): number {
    return this.#droppedCount + this.#chunks.length;
  }

  /** Sequence number of the first event in the log; 0 if the log is empty. */
  get firstEvent(): number {
    return this.#chunks[0]?.first ?? 0;
  }

  /** Number of characters of all events in the log. */
  get length(): number {
    return this.#length;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  #wake(): void {
    for (const listener of this.#listeners) listener();
  }

  #trim(): void {
    const unread = this.#creator?.nextChunk ?? Number.POSITIVE_INFINITY;
    const count = this.#droppable(Math.min(unread - this.#droppedCount, this.#chunks.length));
    for (const { length } of this.#chunks.splice(0, count)) this.#length -= length;
    this.#droppedCount += count;
  }

  /** Returns how many chunks to drop so that the rest fits the size limit; at most `limit`, and never the last chunk. */
  #droppable(limit: number): number {
    let count = 0;
    let length = this.#length;
    while (count < limit && count < this.#chunks.length - 1 && length > this.#maxLength) {
      length -= this.#chunks[count]?.length ?? 0;
      count++;
    }
    return count;
  }
}

/**
 * Reader of an event log, for the loop that sends streams (sse.ts). It yields empty batches, so that the loop calls `encode`
 * for new events.
 */
export class LogReader implements StreamCodec {
  readonly #log: EventLog;
  readonly #after: number;
  readonly #aborted: AbortSignal;
  #next: number;
  /** Last chunk that this reader has returned. */
  #last: EventChunk | null = null;
  #isEnded = false;

  constructor(log: EventLog, after: number, aborted: AbortSignal) {
    this.#log = log;
    this.#after = after;
    this.#aborted = aborted;
    this.#next = log.firstChunk;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Chunk number of the next chunk to read. */
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

  held(): Promise<unknown> | null {
    return this.#isEnded ? this.#log.held() : null;
  }

  /** Ends the stream of this reader with an error. The response itself continues. */
  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return streamError(error, this.#nextNumber());
  }

  #nextNumber(): number {
    return Math.max(this.#last?.next ?? 0, this.#after + 1);
  }
}

/** Returns the events that end a reader's stream with an error. `number`: sequence number of the error event. */
export function streamError(error: ErrorRecord, number: number): string {
  const { code, message, param } = error;
  const data = { type: "error", sequence_number: number, code, message, param: param ?? null, error: wireError(error) };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n${DONE}`;
}

/** Wake-up signal for one waiting task. If a signal is sent while no task waits, the next wait ends immediately. */
export class Bell {
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

/** Throws not_found if the event after event number `after` is no longer stored. `first`: number of the first stored event. */
export function checkStart(after: number, first: number): void {
  if (after + 1 >= first) return;
  const text = `events before number ${first} of this response are no longer stored; ask for those after ${first - 1}`;
  throw new ServerError("not_found", text, { param: "starting_after" });
}
