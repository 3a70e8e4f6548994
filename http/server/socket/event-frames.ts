// Event frames: converts the text of an event stream (SSE) to WebSocket frames. The data of each event becomes one message.
// Event names, comments and the final [DONE] are omitted.
import type { Frame } from "./connection.ts";

const EVENT_END = "\n\n";
const DATA = "data: ";
const DONE = "data: [DONE]";
/**
 * Number of buffered characters at which an incomplete event is sent as a part, so that a long event is never held as one
 * string.
 */
const PART_LENGTH = 2 ** 16;

export class EventFrames {
  /** Buffered text of an incomplete event. */
  #held = "";
  /** Whether the first part of a message has been returned, but not its last part. */
  #isOpen = false;
  #isDone = false;

  /** Whether the stream's final [DONE] has been received. The frames of all events have then been returned. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Whether the frames of an event are incomplete. No other message may be sent before its last frame. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Returns the frames for the next piece of the stream. The piece must end with a complete character. */
  push(piece: string): readonly Frame[] {
    const frames: Frame[] = [];
    const text = this.#held + piece;
    let at = 0;
    for (let end = text.indexOf(EVENT_END); end >= 0; end = text.indexOf(EVENT_END, at)) {
      this.#end(text.slice(at, end), frames);
      at = end + EVENT_END.length;
    }
    this.#held = text.slice(at);
    if (this.#held.length >= PART_LENGTH) this.#cut(frames);
    return frames;
  }

  #end(event: string, frames: Frame[]): void {
    if (this.#isOpen) frames.push({ text: event, part: "last" });
    else if (event === DONE) this.#isDone = true;
    else if (!event.startsWith(":")) frames.push({ text: dataOf(event), part: "whole" });
    this.#isOpen = false;
  }

  /**
   * Returns the buffered text as a part. A line break at its end stays in the buffer, because it may be the first of the two
   * line breaks that end an event.
   */
  #cut(frames: Frame[]): void {
    const length = this.#held.length - (this.#held.endsWith("\n") ? 1 : 0);
    const part = this.#held.slice(0, length);
    frames.push(this.#isOpen ? { text: part, part: "middle" } : { text: dataOf(part), part: "first" });
    this.#held = this.#held.slice(length);
    this.#isOpen = true;
  }
}

/** Returns the data of an event. Events have only one line of data. */
function dataOf(event: string): string {
  return event.slice(event.indexOf(DATA) + DATA.length);
}
