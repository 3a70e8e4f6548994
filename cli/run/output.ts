// Owns writing to a terminal or a pipe: colours where they are wanted, no control characters of a model's or a paste's, and
// a reader who leaves (`| head`) is the end of the work and no failure.
import { once } from "node:events";
import type { Writable } from "node:stream";

/** Standard output or error, or a stream in a test. */
export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
}

export class Output {
  readonly #stream: OutputStream;
  readonly #isColoured: boolean;
  /** Aborted when nobody reads any more. */
  readonly gone: AbortSignal;
  /** Whether the next character is the first of its line. */
  #isAtLineStart = true;

  constructor(stream: OutputStream, environment: Readonly<Record<string, string | undefined>>) {
    this.#stream = stream;
    this.#isColoured = this.isTerminal && !environment.NO_COLOR && environment.TERM !== "dumb";
    const gone = new AbortController();
    this.gone = gone.signal;
    // Whatever the error is, nothing can be written any more.
    stream.on("error", () => gone.abort());
  }

  get isTerminal(): boolean {
    return this.#stream.isTTY === true;
  }

  /** Writes text of a model, and waits where the reader is behind. */
  async write(text: string, style: (text: string) => string = (plain) => plain): Promise<void> {
    if (this.gone.aborted || text === "") return;
    const shown = this.isTerminal ? withoutControls(text) : text;
    this.#isAtLineStart = shown === "" ? this.#isAtLineStart : shown.endsWith("\n");
    if (this.#stream.write(style(shown))) return;
    // Rejects with the error that also aborts `gone`.
    await once(this.#stream, "drain").catch(() => undefined);
  }

  /** Ends a line that was begun. */
  endLine(): void {
    if (!this.#isAtLineStart) this.line("");
  }

  /** Writes a line of our own. */
  line(text: string): void {
    if (!this.gone.aborted) this.#stream.write(`${text}\n`);
    this.#isAtLineStart = true;
  }

  /** Settles when all that was written has left this process, or never will. */
  async flush(): Promise<void> {
    if (!this.gone.aborted) await new Promise<void>((resolve) => this.#stream.write("", () => resolve()));
  }

  dim(text: string): string {
    return this.#styled("2", text);
  }

  red(text: string): string {
    return this.#styled("31", text);
  }

  bold(text: string): string {
    return this.#styled("1", text);
  }

  #styled(code: string, text: string): string {
    return this.#isColoured ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}

/** `text` with characters in place of those that a terminal would obey; line ends and tabs stay. */
export function withoutControls(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}
