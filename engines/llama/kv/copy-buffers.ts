// Copy buffers: memory of saved sequence copies, with a bound, and reuse of buffers of dropped copies. For KV caches
// whose copies are bytes. Buffers of hundreds of MiB are reused because the garbage collector notices them late.

const leastStepBytes = 2 ** 20;

export class CopyBuffers {
  readonly #limitBytes: number;
  readonly #waiting: Uint8Array[] = [];
  /** Bytes of all buffers, idle ones included. */
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** A buffer of at least `sizeBytes`; null if there is no room. */
  take(sizeBytes: number): Uint8Array | null {
    const length = roundedUp(sizeBytes);
    const index = this.#waiting.findIndex((buffer) => buffer.length === length);
    const [buffer] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (buffer !== undefined) return buffer;
    return this.count(length) ? new Uint8Array(length) : null;
  }

  /** Returns a buffer from take() that has no other reference. */
  give(buffer: Uint8Array): void {
    this.#waiting.push(buffer);
  }

  /**
   * Counts bytes allocated elsewhere. Returns false and counts nothing if there is no room; a single copy always fits.
   */
  count(lengthBytes: number): boolean {
    while (this.#bytes + lengthBytes > this.#limitBytes && this.#bytes > 0) {
      const oldest = this.#waiting.shift();
      if (oldest === undefined) return false;
      this.#bytes -= oldest.length;
    }
    this.#bytes += lengthBytes;
    return true;
  }

  /** Stops counting bytes: of a foreign allocation, or of a buffer handed over to another owner. */
  forget(lengthBytes: number): void {
    this.#bytes -= lengthBytes;
  }
}

/** Rounds up in steps of 1/8 to 1/4 of the size, so that a slightly longer copy fits the buffer of the one before. */
function roundedUp(sizeBytes: number): number {
  const step = Math.max(2 ** (Math.floor(Math.log2(sizeBytes)) - 2), leastStepBytes);
  return Math.ceil(sizeBytes / step) * step;
}
