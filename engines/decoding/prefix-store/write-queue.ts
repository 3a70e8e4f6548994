// Write queue: prefixes that wait to be written to disk. Its size in bytes is limited, because the model may compute
// prefixes faster than the disk writes. Used by prefix-store.ts. The queue itself writes nothing.
import type { PrefixContent } from "./prefix-file.ts";
import { beginsWith, type PrefixKey } from "./prefix-list.ts";

export class WriteQueue {
  /** Number of prefixes that were dropped without being written, to make room. */
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

  /** Whether a waiting prefix begins with all tokens of `key`. */
  covers(key: PrefixKey): boolean {
    return this.#waiting.some((other) => beginsWith(other, key));
  }

  /**
   * Adds a prefix, and removes waiting prefixes that the new prefix begins with. Drops the oldest prefixes while the
   * total is above `maxBytes`. The new prefix is always kept, even if it is larger than the limit.
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
