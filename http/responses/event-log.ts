// Owns the events of a response that runs in the background, as they were written, so that readers may come and go. Bounded:
// of a very long stream only the end is kept.
import type { KeptEvents } from "../../actors/stored-responses.ts";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { StreamCodec } from "../sse.ts";
import { DONE } from "./event-text.ts";
import { wireError } from "./resource.ts";

const MAX_LENGTH = 8 * 2 ** 20;
const EVENT_END = "\n\n";

interface Chunk {
  /** Number of its first event. */
  readonly first: number;
  readonly text: string;
}

export class EventLog {
  readonly #maxLength: number;
  #chunks: Chunk[] = [];
  /** Chunks that were dropped before the first that is kept. */
  #droppedCount = 0;
  #length = 0;
  #isClosed = false;
  /** Settles, and is replaced, whenever there is more. */
  #more = signal();

  constructor(maxLength: number = MAX_LENGTH) {
    this.#maxLength = maxLength;
  }

  /** The log of a response that has ended. */
  static ended({ first, text }: KeptEvents): EventLog {
    const log = new EventLog(Number.POSITIVE_INFINITY);
    log.append(first, text);
    log.close();
    return log;
  }

  append(first: number, text: string): void {
    if (text === "") return;
    this.#chunks.push({ first, text });
    this.#length += text.length;
    while (this.#length > this.#maxLength && this.#chunks.length > 1) {
      this.#length -= (this.#chunks.shift() as Chunk).text.length;
      this.#droppedCount++;
    }
    this.#wake();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  /** What is kept, in one piece. */
  kept(): KeptEvents {
    return { first: this.#chunks[0]?.first ?? 0, text: this.#chunks.map(({ text }) => text).join("") };
  }

  /** Reads what comes after event number `after`. Throws not_found where the start of that is not kept. */
  reader(after: number, aborted: AbortSignal): LogReader {
    const first = this.#chunks[0]?.first ?? 0;
    if (after + 1 < first) {
      const text = `of this response's events the ones before number ${first} are not kept any more; ask for those after ${first - 1}`;
      throw new ServerError("not_found", text, { param: "starting_after" });
    }
    return new LogReader(this, after, aborted);
  }

  /** For readers: the text from chunk `at` on that comes after event `after`, and the chunk to go on with. */
  readFrom(at: number, after: number): { readonly text: string; readonly next: number } {
    if (at < this.#droppedCount) {
      throw new ServerError(
        "reader_stalled",
        "the events were read more slowly than they came, and are not kept for so long",
      );
    }
    let text = "";
    for (const chunk of this.#chunks.slice(at - this.#droppedCount)) text += textAfter(chunk, after);
    return { text, next: this.#droppedCount + this.#chunks.length };
  }

  get firstChunk(): number {
    return this.#droppedCount;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get more(): Promise<void> {
    return this.#more.promise;
  }

  #wake(): void {
    const { settle } = this.#more;
    this.#more = signal();
    settle();
  }
}

/**
 * One reader of a log, for the pump of streams: a batch without events says that there is more to encode, which is what the
 * log has.
 */
export class LogReader implements StreamCodec {
  readonly #log: EventLog;
  readonly #after: number;
  readonly #aborted: AbortSignal;
  #next: number;
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

  async *batches(): AsyncGenerator<readonly never[]> {
    const gone = new Promise<void>((resolve) =>
      this.#aborted.addEventListener("abort", () => resolve(), { once: true }),
    );
    while (!this.#aborted.aborted) {
      const { more } = this.#log;
      yield [];
      if (!this.#isEnded) await Promise.race([more, gone]);
    }
  }

  encode(): string {
    const isLast = this.#log.isClosed;
    const { text, next } = this.#log.readFrom(this.#next, this.#after);
    this.#next = next;
    this.#isEnded = isLast;
    return isLast ? text + DONE : text;
  }

  /** The response goes on; only this reader's stream has failed. */
  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    const { code, message, param } = error;
    const data = { type: "error", code, message, param: param ?? null, error: wireError(error) };
    return `event: error\ndata: ${JSON.stringify(data)}\n\n${DONE}`;
  }
}

/** Events end in an empty line, which nothing inside them can be. */
function textAfter({ first, text }: Chunk, after: number): string {
  let at = 0;
  for (let number = first; number <= after && at < text.length; number++) {
    const end = text.indexOf(EVENT_END, at);
    if (end < 0) return "";
    at = end + EVENT_END.length;
  }
  return at === 0 ? text : text.slice(at);
}

function signal(): { readonly promise: Promise<void>; readonly settle: () => void } {
  let settle: () => void = () => {};
  const promise = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return { promise, settle };
}
