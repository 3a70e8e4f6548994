// Line reader: splits the output of a process into lines of bounded length.

const NEWLINE = 0x0a;

export class LineReader {
  readonly #maxBytes: number;
  readonly #onLine: (line: string) => void;
  /** Chunks of the current line, whose end has not arrived yet. */
  #pieces: Buffer[] = [];
  #bytes = 0;

  /** `maxBytes`: maximum length of a line in bytes. `onLine` is called with each line, without the line break. */
  constructor(maxBytes: number, onLine: (line: string) => void) {
    this.#maxBytes = maxBytes;
    this.#onLine = onLine;
  }

  /** Adds output. Returns false if a line is too long; the rest of the output must then be ignored. */
  add(chunk: Buffer): boolean {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      if (!this.#keep(chunk.subarray(from, end))) return false;
      from = end + 1;
      const line = Buffer.concat(this.#pieces).toString("utf8");
      this.#clear();
      this.#onLine(line.endsWith("\r") ? line.slice(0, -1) : line);
    }
    return this.#keep(chunk.subarray(from));
  }

  #keep(piece: Buffer): boolean {
    this.#bytes += piece.length;
    if (this.#bytes > this.#maxBytes) {
      this.#clear();
      return false;
    }
    if (piece.length > 0) this.#pieces.push(piece);
    return true;
  }

  #clear(): void {
    this.#pieces = [];
    this.#bytes = 0;
  }
}
