// PipeLines: writes lines to a pipe or a socket whose reader may be slow or gone. Lines are written at once while there is
// room, then kept in a bounded buffer; what does not fit is dropped and counted. No write blocks this thread, but flush() does.
// Used by stderr.ts.
import { writeSync } from "node:fs";

export interface PipeLinesOptions {
  /** A descriptor that does not block. */
  readonly fd: number;
  /** Most bytes of lines that wait for room. */
  readonly maxWaitingBytes?: number;
  /** Called with the number of lines that were dropped, once there is room for a line that says so. */
  readonly onLost: (count: number) => void;
}

const defaultMaxWaitingBytes = 2 ** 20;
/** How often a full pipe is tried again. */
const retryMs = 50;
const flushRetryMs = 5;

export class PipeLines {
  readonly #fd: number;
  readonly #maxWaitingBytes: number;
  readonly #onLost: (count: number) => void;
  /** In order; the first may be the rest of a line whose start has been written. */
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #lostCount = 0;
  #retry: NodeJS.Timeout | null = null;
  /** Nobody will ever read what is written. */
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
    // The rest of a line that has begun is kept in any case.
    if (rest === bytes && this.#waitingBytes + rest.byteLength > this.#maxWaitingBytes) this.#lostCount++;
    else this.#keep(rest);
    this.#retry ??= setInterval(() => this.#sendWaiting(), retryMs).unref();
  }

  /** Waits for room, for so long at most; blocks this thread meanwhile. To be called before the process exits. */
  flush(limitMs: number): void {
    const deadline = performance.now() + limitMs;
    const nobody = new Int32Array(new SharedArrayBuffer(4));
    while (this.#retry !== null) {
      this.#sendWaiting();
      if (this.#retry === null || performance.now() > deadline) return;
      Atomics.wait(nobody, 0, 0, flushRetryMs);
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

  /** Writes what there is room for; returns the rest. */
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
