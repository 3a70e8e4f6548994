// End of an HTTP/1.1 body in the bytes of a connection: by length, by chunks, or by the connection's end. It stores no bytes: parts
// of the body are lent to the sink.

export type Framing = number | "chunked" | "until close";

interface BodySink {
  body(data: Buffer, from: number, to: number, nowMs: number): void;
}

const newline = 10;
const carriageReturn = 13;

export class BodyReader {
  readonly endsWithConnection: boolean;
  readonly #sink: BodySink;
  readonly #isChunked: boolean;
  /** What the next byte belongs to. */
  #part: "size" | "data" | "data end" | "trailer" = "size";
  /** Bytes of the body (or chunk) still to come. */
  #left: number;
  /** Past the digits of a chunk's size. */
  #isInExtension = false;
  /** Bytes in the current line of the trailer, its end not counted. */
  #lineLength = 0;

  constructor(framing: Framing, sink: BodySink) {
    this.#sink = sink;
    this.#isChunked = framing === "chunked";
    this.endsWithConnection = framing === "until close";
    this.#left = typeof framing === "number" ? framing : framing === "chunked" ? 0 : Number.POSITIVE_INFINITY;
  }

  /** Reads `data` from `from` on. True when the body is complete. */
  read(data: Buffer, from: number, nowMs: number): boolean {
    if (!this.#isChunked) {
      this.#lend(data, from, nowMs);
      return this.#left === 0;
    }
    let at = from;
    while (at < data.length) {
      if (this.#part === "data") {
        at = this.#lend(data, at, nowMs);
        if (this.#left === 0) this.#part = "data end";
      } else if (this.#framingByte(data[at++] ?? 0)) return true;
    }
    return false;
  }

  /** Lends what is there of the current piece; returns where it ends. */
  #lend(data: Buffer, from: number, nowMs: number): number {
    const to = Math.min(data.length, from + this.#left);
    if (to > from) this.#sink.body(data, from, to, nowMs);
    this.#left -= to - from;
    return to;
  }

  /** Takes one byte between chunks. True at the end of the body. */
  #framingByte(byte: number): boolean {
    switch (this.#part) {
      case "size":
        this.#sizeByte(byte);
        return false;
      case "data end":
        if (byte === newline) this.#part = "size";
        return false;
      default:
        // The trailer ends with an empty line.
        if (byte !== newline) this.#lineLength += byte === carriageReturn ? 0 : 1;
        else if (this.#lineLength === 0) return true;
        else this.#lineLength = 0;
        return false;
    }
  }

  #sizeByte(byte: number): void {
    if (byte === newline) {
      this.#part = this.#left === 0 ? "trailer" : "data";
      this.#isInExtension = false;
      return;
    }
    const digit = hexDigit(byte);
    if (digit === -1) this.#isInExtension = true;
    else if (!this.#isInExtension) this.#left = this.#left * 16 + digit;
  }
}

/** The value of an ASCII hexadecimal digit, else -1. */
function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}
