// Assembly of lines into a message: a line that ends in `\` continues, lines between two """ belong together, and so do the lines
// of one paste. Used by the REPL.

export interface WholeMessage {
  readonly text: string;
  /** It was quoted with """, so it is not a command. */
  readonly isQuoted: boolean;
}

const quotes = '"""';

export class MessageLines {
  #lines: string[] = [];
  #isQuoted = false;

  /** No message is incomplete. */
  get isEmpty(): boolean {
    return this.#lines.length === 0 && !this.#isQuoted;
  }

  /** Adds a typed line. Returns the message it completes; null: more lines follow. */
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

  /** Adds a whole pasted line, verbatim: only a typed line completes a message. */
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
