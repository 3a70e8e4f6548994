// Reader of an HTTP/1.1 body that finds its end in the bytes of a connection: by length, by chunks, or by the end of the
// connection. It stores no bytes. It passes parts of the body to the sink, which may use them only during the call.

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
  /** Part of the body to which the next byte belongs. */
  #part: "size" | "data" | "data end" | "trailer" = "size";
  /** Bytes of the body (or chunk) that have not arrived yet. */
  #left: number;
  /** Whether the digits of a chunk's size have ended. */
  #isInExtension = false;
  /** Bytes in the current line of the trailer, without its line end. */
  #lineLength = 0;

  constructor(framing: Framing, sink: BodySink) {
    this.#sink = sink;
    this.#isChunked = framing === "chunked";
    this.endsWithConnection = framing === "until close";
    this.#left = typeof framing === "number" ? framing : framing === "chunked" ? 0 : Number.POSITIVE_INFINITY;
  }

  /** Reads `data` starting at `from`. Returns true when the body is complete. */
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

  /** Passes the available bytes of the current body or chunk to the sink. Returns the offset of the end of these bytes. */
  #lend(data: Buffer, from: number, nowMs: number): number {
    const to = Math.min(data.length, from + this.#left);
    if (to > from) this.#sink.body(data, from, to, nowMs);
    this.#left -= to - from;
    return to;
  }

  /** Reads one byte between chunks. Returns true at the end of the body. */
  #framingByte(byte: number): boolean {
    switch (this.#part) {
      case "size":
        this.#sizeByte(byte);
        return false;
      case "data end":
        if (byte === newline) this.#part = "size";
        return false;
      default:
        // An empty line ends the trailer.
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

/** Returns the value of an ASCII hexadecimal digit, or -1. */
function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}
