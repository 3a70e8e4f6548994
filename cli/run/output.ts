// Output to a terminal or a pipe. A terminal gets colours unless NO_COLOR is set. Control characters in text are replaced. If
// the pipe is closed (`| head`), output stops without an error.
import { once } from "node:events";
import type { Writable } from "node:stream";

/** Standard output or standard error; tests use a plain stream. */
export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const DEFAULT_WIDTH = 100;

export class Output {
  readonly #stream: OutputStream;
  readonly #isColoured: boolean;
  /** Aborted when the stream can no longer be written to. */
  readonly gone: AbortSignal;
  /** Whether the next character is the first of its line. */
  #isAtLineStart = true;

  constructor(stream: OutputStream, environment: Readonly<Record<string, string | undefined>>) {
    this.#stream = stream;
    this.#isColoured = this.isTerminal && !environment.NO_COLOR && environment.TERM !== "dumb";
    const gone = new AbortController();
    this.gone = gone.signal;
    // After any error, the stream can no longer be written to.
    stream.on("error", () => gone.abort());
  }

  get isTerminal(): boolean {
    return this.#stream.isTTY === true;
  }

  /** Width of a line in characters. */
  get width(): number {
    return this.#stream.columns ?? DEFAULT_WIDTH;
  }

  /** Writes text of a model. Resolves when the stream is ready for more text. */
  async write(text: string, style: (text: string) => string = (plain) => plain): Promise<void> {
    if (this.gone.aborted || text === "") return;
    const shown = this.isTerminal ? withoutControls(text) : text;
    this.#isAtLineStart = shown === "" ? this.#isAtLineStart : shown.endsWith("\n");
    if (this.#stream.write(style(shown))) return;
    // A rejection is ignored, because the same error has also aborted `gone`.
    await once(this.#stream, "drain").catch(() => undefined);
  }

  /** Ends the current line, unless it is empty. */
  endLine(): void {
    if (!this.#isAtLineStart) this.line("");
  }

  /** Writes a line of text of the program itself. */
  line(text: string): void {
    if (!this.gone.aborted) this.#stream.write(`${text}\n`);
    this.#isAtLineStart = true;
  }

  /** Resolves when everything is written, or the stream can no longer be written to. */
  async flush(): Promise<void> {
    if (!this.gone.aborted) await new Promise<void>((resolve) => this.#stream.write("", () => resolve()));
  }

  dim(text: string): string {
    return this.#styled("2", text);
  }

  red(text: string): string {
    return this.#styled("31", text);
  }

  green(text: string): string {
    return this.#styled("32", text);
  }

  bold(text: string): string {
    return this.#styled("1", text);
  }

  #styled(code: string, text: string): string {
    return this.#isColoured ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}

/** Replaces control characters in `text` with U+FFFD. Line feeds and tabs are kept; CR LF becomes LF. */
export function withoutControls(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}
