// Event outlet: the writing end of the event stream of one call. The call sends its events here, and waits while the reader is
// behind.
import type { StreamHub } from "./stream.ts";
import type { StreamWriter } from "./stream-ends.ts";

export class EventOutlet<Event> {
  readonly #writer: StreamWriter<Event>;
  #resume: () => void = () => {};
  #isCancelled = false;

  /** `stream`: id of the stream. `onCancel` is called when the reader has cancelled or is gone. */
  constructor(hub: StreamHub, stream: number, onCancel: () => void) {
    this.#writer = hub.writer<Event>(stream, {
      onCancel: () => {
        this.#isCancelled = true;
        onCancel();
        this.#resume();
      },
      onDrain: () => this.#resume(),
    });
  }

  /** Sends an event. Resolves when there is room for the next one, or when the reader is gone. */
  async send(event: Event): Promise<void> {
    const resumed = new Promise<void>((resolve) => {
      this.#resume = resolve;
    });
    // Do not wait after a cancellation: write() then returns false, but `onDrain` is never called.
    if (!this.#writer.write(event) && !this.#isCancelled) await resumed;
  }

  /** Sends the last event, without waiting. */
  sendLast(event: Event): void {
    this.#writer.write(event);
  }

  end(): void {
    this.#writer.end();
  }
}
