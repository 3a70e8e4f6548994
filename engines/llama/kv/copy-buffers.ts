// Owns the memory that copies of sequences lie in: how much there may be, and buffers of dropped copies that wait for the
// next one. Used by the KV cache whose copies are bytes. Buffers of hundreds of MiB are taken again rather than left to the
// garbage collector, which sees them late.

const leastStepBytes = 2 ** 20;

export class CopyBuffers {
  readonly #limitBytes: number;
  readonly #waiting: Uint8Array[] = [];
  /** Bytes of all buffers, waiting ones included. */
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** A buffer of at least so many bytes; null where there is no room for it. */
  take(sizeBytes: number): Uint8Array | null {
    const length = roundedUp(sizeBytes);
    const index = this.#waiting.findIndex((buffer) => buffer.length === length);
    const [buffer] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (buffer !== undefined) return buffer;
    return this.count(length) ? new Uint8Array(length) : null;
  }

  /** Gives back a buffer that take() gave and nobody else knows of. */
  give(buffer: Uint8Array): void {
    this.#waiting.push(buffer);
  }

  /**
   * Counts bytes that were made elsewhere. False, and they are not, where there is no room for them: there always is for
   * the only copy.
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

  /** Counts bytes no longer: of others, or of a buffer that somebody else now has. */
  forget(lengthBytes: number): void {
    this.#bytes -= lengthBytes;
  }
}

/** In steps of a fourth to an eighth, so that a copy that has grown a little finds the buffer of the one before. */
function roundedUp(sizeBytes: number): number {
  const step = Math.max(2 ** (Math.floor(Math.log2(sizeBytes)) - 2), leastStepBytes);
  return Math.ceil(sizeBytes / step) * step;
}
