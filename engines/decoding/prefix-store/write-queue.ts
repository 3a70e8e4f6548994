// Write queue: prefixes that wait for the disk, bounded in bytes, because the model may compute them faster than the
// disk writes. Used by prefix-store.ts; it writes nothing itself.
import type { PrefixContent } from "./prefix-file.ts";
import { beginsWith, type PrefixKey } from "./prefix-list.ts";

export class WriteQueue {
  /** Prefixes dropped unwritten to make room. */
  droppedCount = 0;
  readonly #maxBytes: number;
  #waiting: PrefixContent[] = [];

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get size(): number {
    return this.#waiting.length;
  }

  get bytes(): number {
    return this.#waiting.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /** Whether a waiting prefix begins with all of this one. */
  covers(key: PrefixKey): boolean {
    return this.#waiting.some((other) => beginsWith(other, key));
  }

  /**
   * Replaces the waiting prefixes it covers. The oldest are dropped above the limit of bytes; a single one may be
   * larger.
   */
  push(content: PrefixContent): void {
    this.#waiting = this.#waiting.filter((other) => !beginsWith(content, other));
    this.#waiting.push(content);
    while (this.#waiting.length > 1 && this.bytes > this.#maxBytes) {
      this.#waiting.shift();
      this.droppedCount++;
    }
  }

  shift(): PrefixContent | undefined {
    return this.#waiting.shift();
  }

  clear(): void {
    this.#waiting = [];
  }
}
