// Process output: bounded text of a command's stdout or stderr.
import type { Readable } from "node:stream";
import { BoundedText } from "./bounded-text.ts";

/** Maximum number of bytes that are kept of stdout, and of stderr, per Python call or command. */
export const maxOutputBytes = 65_536;
/** Maximum time in ms to wait for the end of an output stream after its process has ended. */
const CLOSE_MS = 1000;

export class ProcessOutput {
  readonly text = new BoundedText(maxOutputBytes);
  readonly #stream: Readable;
  readonly #closed: Promise<void>;

  constructor(stream: Readable) {
    this.#stream = stream;
    this.#closed = whenClosed(stream);
    stream.on("data", (chunk: Buffer) => this.text.add(chunk));
  }

  /** Waits for the output that was written before the process ended. */
  async end(): Promise<void> {
    await endStream(this.#stream, this.#closed);
  }
}

export function whenClosed(stream: Readable): Promise<void> {
  stream.on("error", () => {});
  return new Promise((resolve) => {
    stream.once("close", resolve);
  });
}

/**
 * Waits for the end of a stream whose process has ended. Without a sandbox, a child process that is still running can keep the
 * stream open, so the stream is destroyed after CLOSE_MS.
 */
export async function endStream(stream: Readable, closed: Promise<void>): Promise<void> {
  const timer = setTimeout(() => stream.destroy(), CLOSE_MS);
  await closed;
  clearTimeout(timer);
}
