// Output to a terminal or a pipe: colours on a terminal unless NO_COLOR is set, control characters of text replaced. A closed
// pipe (`| head`) ends the work without an error.
import { once } from "node:events";
import type { Writable } from "node:stream";

/** Standard output or error; a plain stream in tests. */
export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
}

export class Output {
  readonly #stream: OutputStream;
  readonly #isColoured: boolean;
  /** Aborted when the stream can no longer be written. */
  readonly gone: AbortSignal;
  /** Whether the next character is the first of its line. */
  #isAtLineStart = true;

  constructor(stream: OutputStream, environment: Readonly<Record<string, string | undefined>>) {
    this.#stream = stream;
    this.#isColoured = this.isTerminal && !environment.NO_COLOR && environment.TERM !== "dumb";
    const gone = new AbortController();
    this.gone = gone.signal;
    // After any error, nothing can be written.
    stream.on("error", () => gone.abort());
  }

  get isTerminal(): boolean {
    return this.#stream.isTTY === true;
  }

  /** Writes text of a model; resolves when the stream can take more. */
  async write(text: string, style: (text: string) => string = (plain) => plain): Promise<void> {
    if (this.gone.aborted || text === "") return;
    const shown = this.isTerminal ? withoutControls(text) : text;
    this.#isAtLineStart = shown === "" ? this.#isAtLineStart : shown.endsWith("\n");
    if (this.#stream.write(style(shown))) return;
    // Rejects with the error that also aborts `gone`.
    await once(this.#stream, "drain").catch(() => undefined);
  }

  /** Ends the current line if it has text. */
  endLine(): void {
    if (!this.#isAtLineStart) this.line("");
  }

  /** Writes a line of the program itself. */
  line(text: string): void {
    if (!this.gone.aborted) this.#stream.write(`${text}\n`);
    this.#isAtLineStart = true;
  }

  /** Resolves when everything is written, or the stream is gone. */
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

/** `text` with control characters replaced by U+FFFD; line feeds and tabs stay, CR LF becomes LF. */
export function withoutControls(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}
