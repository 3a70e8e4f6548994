// Owns the prefixes that wait to be written: at most so many bytes of them, since they come as fast as the model computes
// and leave as fast as a disk writes. Used by prefix-store.ts; it writes nothing itself.
import type { PrefixContent } from "./prefix-file.ts";
import { beginsWith, type PrefixKey } from "./prefix-list.ts";

export class WriteQueue {
  /** Those that had to make room unwritten. */
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

  /** Whether one that waits begins with all of this. */
  covers(key: PrefixKey): boolean {
    return this.#waiting.some((other) => beginsWith(other, key));
  }

  /** Takes the place of those it covers. The oldest go where there are too many bytes; one alone may have more. */
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
