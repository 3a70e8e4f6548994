// Event outlet: the writing end of a call's stream of events. A call waits when its reader is behind.
import type { StreamHub } from "./stream.ts";
import type { StreamWriter } from "./stream-ends.ts";

export class EventOutlet<Event> {
  readonly #writer: StreamWriter<Event>;
  #resume: () => void = () => {};
  #isCancelled = false;

  /** `onCancel` is called when the reader has cancelled or is gone. */
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
    // After a cancellation, write() returns false and nothing resumes.
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
