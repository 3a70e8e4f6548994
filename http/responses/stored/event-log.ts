// Owns the events of a response that runs in the background, as they were written, so that readers may come and go. Bounded:
// of a very long stream only the end is kept, and what its creator has not been given yet.
import { ServerError } from "../../../runtime/errors.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import type { EventChunk } from "../fold/event-chunks.ts";
import { LogReader, type ReadableLog } from "./log-reader.ts";

const MAX_LENGTH = 8 * 2 ** 20;

export class EventLog implements ReadableLog {
  readonly #maxLength: number;
  readonly #lease: AnswerLease | null;
  /** Called whenever there is more. */
  readonly #listeners = new Set<() => void>();
  #chunks: EventChunk[] = [];
  /** Chunks that were dropped before the first that is kept. */
  #droppedCount = 0;
  #length = 0;
  #isClosed = false;
  /** Nothing that this reader has still to be given is dropped. */
  #creator: LogReader | null = null;

  /** The lease is on the memory of its long events: null where it has none. */
  constructor(maxLength: number = MAX_LENGTH, lease: AnswerLease | null = null) {
    this.#maxLength = maxLength;
    this.#lease = lease;
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

  /** What may be kept of it. */
  kept(): readonly EventChunk[] {
    return this.#chunks.slice(this.#droppable(this.#chunks.length));
  }

  /** Reads what comes after event number `after`. Throws not_found where the start of that is not kept. */
  reader(after: number, aborted: AbortSignal): LogReader {
    checkStart(after, this.#chunks[0]?.first ?? 0);
    return new LogReader(this, after, aborted);
  }

  /**
   * Reads from the first event on, for the client that has created the response. Until it leaves, which a client that reads
   * nothing has to before long, what it has not been given is kept: the very first events may be too long together.
   */
  creatorReader(aborted: AbortSignal): LogReader {
    const reader = this.reader(-1, aborted);
    this.#creator = reader;
    return reader;
  }

  /** A reader has begun to read. */
  entered(): void {
    this.#lease?.retain();
  }

  /** A reader has left. */
  left(reader: LogReader): void {
    this.#lease?.release();
    if (reader !== this.#creator) return;
    this.#creator = null;
    this.#trim();
  }

  /** For readers: the chunks from number `at` on. Throws reader_stalled where they are not kept any more. */
  chunksFrom(at: number): readonly EventChunk[] {
    if (at < this.#droppedCount) {
      throw new ServerError(
        "reader_stalled",
        "the events were read more slowly than they came, and are not kept for so long",
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

  get firstChunk(): number {
    return this.#droppedCount;
  }

  /** Characters of the events that it holds. */
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

  /** How many of the first `limit` chunks are too much. The last is kept, however long. */
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

/** Throws not_found where the first event that is kept is not among the first that are asked for. */
export function checkStart(after: number, first: number): void {
  if (after + 1 >= first) return;
  const text = `events before number ${first} of this response are no longer stored; ask for those after ${first - 1}`;
  throw new ServerError("not_found", text, { param: "starting_after" });
}
