// Bounded text: the output of a process. If it exceeds the capacity, only its beginning, its end and its total length are kept.

export class BoundedText {
  readonly #half: number;
  /** The first half contains the first bytes; the second half is a ring buffer of the last bytes. Allocated when the first byte arrives. */
  #bytes: Buffer | null = null;
  #total = 0;

  /** `capacity`: number of bytes to keep. */
  constructor(capacity: number) {
    this.#half = Math.max(1, Math.floor(capacity / 2));
  }

  add(added: Buffer): void {
    if (added.length === 0) return;
    this.#bytes ??= Buffer.allocUnsafe(2 * this.#half);
    const toHead = Math.min(added.length, Math.max(0, this.#half - this.#total));
    added.copy(this.#bytes, this.#total, 0, toHead);
    // Only the last bytes of a long chunk fit into the ring buffer.
    let from = Math.max(toHead, added.length - this.#half);
    while (from < added.length) {
      const at = (this.#total + from - this.#half) % this.#half;
      from += added.copy(this.#bytes, this.#half + at, from, from + this.#half - at);
    }
    this.#total += added.length;
  }

  /** Returns at most `limit` bytes of the text, with a note in place of the omitted bytes. */
  within(limit: number): string {
    if (this.#bytes === null) return "";
    if (this.#total <= Math.min(limit, 2 * this.#half)) {
      return this.#bytes.toString("utf8", 0, this.#total);
    }
    const half = Math.min(this.#half, Math.floor(limit / 2));
    const head = this.#bytes.subarray(0, Math.min(half, this.#total));
    return excerpt(head, this.#tail(half), this.#total);
  }

  /** Returns the last `length` bytes. The text must be longer than `length`. */
  #tail(length: number): Buffer {
    const bytes = this.#bytes ?? Buffer.alloc(0);
    const kept = Math.min(this.#total, 2 * this.#half);
    if (kept === this.#total) return bytes.subarray(this.#total - length, this.#total);
    const end = (this.#total - this.#half) % this.#half;
    const ring = Buffer.concat([bytes.subarray(this.#half + end), bytes.subarray(this.#half, this.#half + end)]);
    return ring.subarray(ring.length - length);
  }
}

/**
 * Returns at most `limit` bytes of a text: its beginning and end, with a note in place of the omitted bytes. Unpaired surrogates
 * become replacement characters, because many JSON parsers reject them.
 */
export function boundedText(text: string, limit: number): string {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= limit) return bytes.toString("utf8");
  const half = Math.floor(limit / 2);
  return excerpt(bytes.subarray(0, half), bytes.subarray(bytes.length - half), bytes.length);
}

/** Joins the beginning and the end of a text. Incomplete characters at the two cuts are dropped. */
function excerpt(head: Buffer, tail: Buffer, total: number): string {
  const first = head.subarray(0, head.length - cutAtEnd(head));
  const last = tail.subarray(cutAtStart(tail));
  const omitted = total - first.length - last.length;
  return `${first.toString("utf8")}\n[${omitted} bytes left out]\n${last.toString("utf8")}`;
}

/** Returns the number of bytes at the start that belong to a character whose first byte is missing. */
function cutAtStart(bytes: Buffer): number {
  const start = bytes.subarray(0, 4).findIndex((byte) => (byte & 0xc0) !== 0x80);
  return start >= 0 ? start : Math.min(bytes.length, 3);
}

/** Returns the number of bytes at the end that belong to a character whose last byte is missing. */
function cutAtEnd(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}
