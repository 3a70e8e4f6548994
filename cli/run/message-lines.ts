// Owns putting lines together to a message: a line that ends in `\` goes on, lines between two """ belong together, and so
// do the lines of one paste. Fed by the REPL; it knows no terminal and no command.

export interface WholeMessage {
  readonly text: string;
  /** It stood between """, so that nothing in it is a command. */
  readonly isQuoted: boolean;
}

const quotes = '"""';

export class MessageLines {
  #lines: string[] = [];
  #isQuoted = false;

  /** Nothing is waiting for more lines. */
  get isEmpty(): boolean {
    return this.#lines.length === 0 && !this.#isQuoted;
  }

  /** Takes a line that was typed. Returns the message it completes, or null where more is to come. */
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

  /** Takes a whole line out of a paste, whatever stands in it: a paste is complete only when a typed line ends it. */
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
