// Copy buffers: memory for saved copies of sequences, with a size limit. Used by KV caches that save a copy as bytes.
// Buffers of dropped copies are reused, because the garbage collector would free buffers of hundreds of MiB too late.

const leastStepBytes = 2 ** 20;

export class CopyBuffers {
  readonly #limitBytes: number;
  readonly #waiting: Uint8Array[] = [];
  /** Total size of all buffers, including idle ones. */
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Returns a buffer of at least `sizeBytes` bytes; null if there is no room. */
  take(sizeBytes: number): Uint8Array | null {
    const length = roundedUp(sizeBytes);
    const index = this.#waiting.findIndex((buffer) => buffer.length === length);
    const [buffer] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (buffer !== undefined) return buffer;
    return this.count(length) ? new Uint8Array(length) : null;
  }

  /** Makes a buffer that take() returned available for reuse. The caller must keep no reference to the buffer. */
  give(buffer: Uint8Array): void {
    this.#waiting.push(buffer);
  }

  /**
   * Adds the size of a buffer allocated elsewhere to the total, and drops idle buffers to make room. Returns false if
   * there is not enough room. If the total is 0, any size is accepted.
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

  /** Subtracts the size of a buffer that was counted and will not be reused, for example because it has another owner now. */
  forget(lengthBytes: number): void {
    this.#bytes -= lengthBytes;
  }
}

/**
 * Rounds a size up to a multiple of a step. The step is 1/8 to 1/4 of the size, but at least `leastStepBytes`. So a
 * slightly longer copy fits into the buffer of the previous copy.
 */
function roundedUp(sizeBytes: number): number {
  const step = Math.max(2 ** (Math.floor(Math.log2(sizeBytes)) - 2), leastStepBytes);
  return Math.ceil(sizeBytes / step) * step;
}
