// Message lines: joins lines into a message. A line that ends in `\` continues on the next line. Lines between two """ are one
// message, and so are the lines of one paste. Used by the REPL.

export interface WholeMessage {
  readonly text: string;
  /** Whether the message was quoted with """. A quoted message is not a command. */
  readonly isQuoted: boolean;
}

const quotes = '"""';

export class MessageLines {
  #lines: string[] = [];
  #isQuoted = false;

  /** Whether no message is in progress. */
  get isEmpty(): boolean {
    return this.#lines.length === 0 && !this.#isQuoted;
  }

  /** Adds a typed line. Returns the message that the line completes; null if more lines must follow. */
  addTyped(line: string): WholeMessage | null {
    if (this.#isQuoted) return this.#addQuoted(line);
    if (this.isEmpty && line.trimStart().startsWith(quotes)) {
      this.#isQuoted = true;
      const rest = line.slice(line.indexOf(quotes) + quotes.length);
      return rest.trim() === "" ? null : this.#addQuoted(rest);
    }
    if (line.endsWith("\\")) {
      this.#lines.push(line.slice(0, -1));
      return null;
    }
    this.#lines.push(line);
    return this.#complete();
  }

  /** Adds a complete pasted line unchanged. A pasted line never completes a message; only a typed line does. */
  addPasted(line: string): void {
    this.#lines.push(line);
  }

  clear(): void {
    this.#lines = [];
    this.#isQuoted = false;
  }

  #addQuoted(line: string): WholeMessage | null {
    const end = line.trimEnd();
    if (!end.endsWith(quotes)) {
      this.#lines.push(line);
      return null;
    }
    const last = end.slice(0, -quotes.length);
    if (last !== "") this.#lines.push(last);
    return this.#complete();
  }

  #complete(): WholeMessage {
    const whole = { text: this.#lines.join("\n").trimEnd(), isQuoted: this.#isQuoted };
    this.clear();
    return whole;
  }
}
