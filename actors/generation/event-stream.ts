// Event stream: carries the events of one request to the main thread, through a bounded stream. While the reader is behind, it
// buffers the events that were on their way; the generations that emit them pause meanwhile. How long a reader may stand still
// is decided in http/, which cuts the connection; then the stream is cancelled.
import type { GenerateEvent, Usage } from "../../engines/generation.ts";
import type { StreamWriter, WriterHooks } from "../../runtime/actor/stream-ends.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { GenerationEvent } from "../messages.ts";
import { EventBuffer } from "./output/event-buffer.ts";

export interface EventStreamOptions {
  readonly open: (hooks: WriterHooks) => StreamWriter<GenerationEvent>;
  /** The reader has cancelled, or is gone. At most once. */
  readonly onCancel: () => void;
  /** The reader has caught up after a write() that returned false. */
  readonly onDrain: () => void;
}

export class EventStream {
  readonly #writer: StreamWriter<GenerationEvent>;
  readonly #onDrain: () => void;
  /** Events since the reader is behind. */
  readonly #buffer = new EventBuffer();
  #isBehind = false;
  #isEnding = false;

  constructor({ open, onCancel, onDrain }: EventStreamOptions) {
    this.#onDrain = onDrain;
    this.#writer = open({ onCancel, onDrain: () => this.#drained() });
  }

  /** The first write: tells the main thread that the prompt is in tokens. */
  prepared(): void {
    this.#isBehind = !this.#writer.write({ type: "prepared" });
  }

  /** False if the reader is behind: the writer should pause until onDrain. The event is kept all the same. */
  write(event: GenerateEvent): boolean {
    if (this.#isBehind) this.#buffer.add(event);
    else this.#isBehind = !this.#writer.write(event);
    return !this.#isBehind;
  }

  /** Ends the stream with `done`, once the reader has room for all events; or with an error, at once. */
  async endWith(result: Promise<{ readonly usage: Usage }>): Promise<void> {
    try {
      this.write({ type: "done", usage: (await result).usage });
      this.#isEnding = true;
    } catch (error) {
      this.#buffer.take();
      this.#writer.write({ type: "error", error: toErrorRecord(error) });
    }
    if (this.#buffer.isEmpty) this.#writer.end();
  }

  #drained(): void {
    this.#isBehind = false;
    for (const event of this.#buffer.take()) this.write(event);
    if (this.#isEnding && this.#buffer.isEmpty) this.#writer.end();
    else if (!this.#isBehind) this.#onDrain();
  }
}
