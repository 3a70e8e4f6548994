// Owns one reader of a log of events, for the pump of streams: a batch without events says that there is more to encode, which
// is what the log has. Made by event-log.ts.
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { StreamCodec } from "../sse.ts";
import type { EventLog } from "./event-log.ts";
import { type Chunk, DONE } from "./event-text.ts";
import { wireError } from "./resource.ts";

const EVENT_END = "\n\n";

export class LogReader implements StreamCodec {
  readonly #log: EventLog;
  readonly #after: number;
  readonly #aborted: AbortSignal;
  #next: number;
  /** What was given out last. */
  #last: Chunk | null = null;
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

  /** Number of the chunk that it has not been given yet. */
  get nextChunk(): number {
    return this.#next;
  }

  async *batches(): AsyncGenerator<readonly never[]> {
    const bell = new Bell();
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

  encode(): string {
    const isLast = this.#log.isClosed;
    const chunks = this.#log.chunksFrom(this.#next);
    let text = "";
    for (const chunk of chunks) text += textAfter(chunk, this.#after);
    this.#next += chunks.length;
    this.#last = chunks.at(-1) ?? this.#last;
    this.#isEnded = isLast;
    return isLast ? text + DONE : text;
  }

  /** The response goes on; only this reader's stream has failed. */
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
    const given = this.#last === null ? 0 : this.#last.first + this.#last.text.split(EVENT_END).length - 1;
    return Math.max(given, this.#after + 1);
  }
}

/** Wakes one who waits; what rings while nobody does is heard by the next. */
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
