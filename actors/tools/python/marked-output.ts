// Delimited output: splits the stdout or stderr of an interpreter by cell. The driver writes a delimiter after the output of each cell.
import type { Readable } from "node:stream";
import { BoundedText } from "../bounded-text.ts";
import { endStream, maxOutputBytes, whenClosed } from "../process-output.ts";

export class MarkedOutput {
  readonly #stream: Readable;
  readonly #closed: Promise<void>;
  readonly #mark: Buffer;
  #text = new BoundedText(maxOutputBytes);
  /** Bytes at the end of the received output that may be the beginning of the delimiter. */
  #held: Buffer = Buffer.alloc(0);
  #onMark: () => void = () => {};
  /** Resolves when the delimiter after the cell's output has arrived. */
  marked: Promise<void> = Promise.resolve();

  constructor(stream: Readable, mark: string) {
    this.#stream = stream;
    this.#mark = Buffer.from(mark);
    this.#closed = whenClosed(stream);
    stream.on("data", (chunk: Buffer) => this.#add(chunk)).pause();
  }

  /** Begins the output of the next cell. Output since the last delimiter, for example of a background thread, is added to this cell. */
  begin(): void {
    this.marked = new Promise((resolve) => {
      this.#onMark = resolve;
    });
    this.#stream.resume();
  }

  /** Waits for the remaining output of a process that has ended. The delimiter may be missing from it. */
  async end(): Promise<void> {
    this.#stream.resume();
    await endStream(this.#stream, this.#closed);
    this.#text.add(this.#held);
    this.#held = Buffer.alloc(0);
  }

  /** Returns the output of the cell. */
  take(): BoundedText {
    const text = this.#text;
    this.#text = new BoundedText(maxOutputBytes);
    // The stream is not read between cells, so a child process that keeps writing is blocked and does not keep this thread busy.
    this.#stream.pause();
    return text;
  }

  #add(chunk: Buffer): void {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = bytes.indexOf(this.#mark);
    if (at >= 0) {
      this.#text.add(bytes.subarray(0, at));
      this.#held = Buffer.from(bytes.subarray(at + this.#mark.length));
      this.#onMark();
      return;
    }
    const kept = Math.min(bytes.length, this.#mark.length - 1);
    this.#text.add(bytes.subarray(0, bytes.length - kept));
    this.#held = Buffer.from(bytes.subarray(bytes.length - kept));
  }
}
