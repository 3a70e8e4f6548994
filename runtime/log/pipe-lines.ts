// Pipe lines: writes lines to a pipe or socket whose reader may be slow or gone. While the pipe is full, lines
// wait in a bounded buffer. Lines that do not fit are dropped and counted. Writes do not block this thread, but
// flush() does. Used by stderr.ts.
import { writeSync } from "node:fs";

export interface PipeLinesOptions {
  /** A file descriptor in non-blocking mode. */
  readonly fd: number;
  /** Maximum number of bytes of lines that wait for room in the pipe. */
  readonly maxWaitingBytes?: number;
  /** Called with the number of dropped lines, once there is room for a line that reports this number. */
  readonly onLost: (count: number) => void;
}

const defaultMaxWaitingBytes = 2 ** 20;
/** Interval in ms between attempts to write to a full pipe. */
const retryMs = 50;
const flushRetryMs = 5;

export class PipeLines {
  readonly #fd: number;
  readonly #maxWaitingBytes: number;
  readonly #onLost: (count: number) => void;
  /** Waiting lines in order. The first may be the rest of a line that was partly written. */
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #lostCount = 0;
  #retry: NodeJS.Timeout | null = null;
  /** True if the reader is permanently gone. */
  #isBroken = false;

  constructor({ fd, maxWaitingBytes = defaultMaxWaitingBytes, onLost }: PipeLinesOptions) {
    this.#fd = fd;
    this.#maxWaitingBytes = maxWaitingBytes;
    this.#onLost = onLost;
  }

  write(line: string): void {
    if (this.#isBroken) return;
    const bytes = Buffer.from(line);
    const rest = this.#waiting.length === 0 ? this.#send(bytes) : bytes;
    if (rest.byteLength === 0) return;
    // The rest of a partly written line is always kept, even above the limit.
    if (rest === bytes && this.#waitingBytes + rest.byteLength > this.#maxWaitingBytes) this.#lostCount++;
    else this.#keep(rest);
    this.#retry ??= setInterval(() => this.#sendWaiting(), retryMs).unref();
  }

  /** Blocks this thread until all lines are written, but at most for `limitMs`. Called before the process exits. */
  flush(limitMs: number): void {
    const deadline = performance.now() + limitMs;
    const unused = new Int32Array(new SharedArrayBuffer(4));
    while (this.#retry !== null) {
      this.#sendWaiting();
      if (this.#retry === null || performance.now() > deadline) return;
      Atomics.wait(unused, 0, 0, flushRetryMs);
    }
  }

  #keep(bytes: Buffer): void {
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.byteLength;
  }

  #sendWaiting(): void {
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      const rest = this.#send(first);
      this.#waitingBytes -= first.byteLength - rest.byteLength;
      if (rest.byteLength > 0) {
        this.#waiting[0] = rest;
        return;
      }
      this.#waiting.shift();
    }
    this.#stopRetrying();
    const lostCount = this.#lostCount;
    this.#lostCount = 0;
    if (lostCount > 0) this.#onLost(lostCount);
  }

  /** Writes as much as the pipe accepts, and returns the rest. */
  #send(bytes: Buffer): Buffer {
    try {
      return bytes.subarray(writeSync(this.#fd, bytes));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") this.#break();
      return bytes;
    }
  }

  #break(): void {
    this.#isBroken = true;
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
    this.#lostCount = 0;
    this.#stopRetrying();
  }

  #stopRetrying(): void {
    if (this.#retry !== null) clearInterval(this.#retry);
    this.#retry = null;
  }
}
