// Event stream: sends the events of one request to the main thread through a bounded stream. If the reader is slow, the
// generation pauses. Events that the generation emits before the pause takes effect are buffered. If a reader stalls too long,
// http/ closes the connection, which cancels the stream.
import type { GenerateEvent, Usage } from "../../engines/generation.ts";
import type { StreamWriter, WriterHooks } from "../../runtime/actor/stream-ends.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { GenerationEvent } from "../messages.ts";
import { EventBuffer } from "./output/event-buffer.ts";

export interface EventStreamOptions {
  readonly open: (hooks: WriterHooks) => StreamWriter<GenerationEvent>;
  /** Called at most once, when the reader has cancelled the stream or has ended. */
  readonly onCancel: () => void;
  /** Called when the reader has caught up after a write() that returned false. */
  readonly onDrain: () => void;
}

export class EventStream {
  readonly #writer: StreamWriter<GenerationEvent>;
  readonly #onDrain: () => void;
  /** Events emitted while the stream is full. */
  readonly #buffer = new EventBuffer();
  #isBehind = false;
  #isEnding = false;

  constructor({ open, onCancel, onDrain }: EventStreamOptions) {
    this.#onDrain = onDrain;
    this.#writer = open({ onCancel, onDrain: () => this.#drained() });
  }

  /** Writes the first item, which reports to the main thread that the prompt has been tokenised. */
  prepared(): void {
    this.#isBehind = !this.#writer.write({ type: "prepared" });
  }

  /** Sends or buffers an event. Returns false if the stream is full; the writer should then pause until onDrain is called. */
  write(event: GenerateEvent): boolean {
    if (this.#isBehind) this.#buffer.add(event);
    else this.#isBehind = !this.#writer.write(event);
    return !this.#isBehind;
  }

  /** Ends the stream with the result. `done` is sent after the reader has read all events; an error is sent immediately. */
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
