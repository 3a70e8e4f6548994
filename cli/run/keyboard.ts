// Owns what a terminal sends, before readline sees it: a paste is handed over whole, and while an answer is on its way keys
// wait, except for ctrl-c. readline reads the rest from here as if it were the terminal.
import { Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/** The terminal's input, or a stream in a test. */
export interface KeySource extends Readable {
  setRawMode?(isRaw: boolean): unknown;
}

export interface KeyHandlers {
  /** Text that was pasted, all of it. */
  onPaste(text: string): void;
  /** Ctrl-c while keys are held. */
  onInterrupt(): void;
}

const pasteStart = "\x1b[200~";
const pasteEnd = "\x1b[201~";
const ctrlC = "\x03";
/** Tells a terminal to mark what is pasted. */
export const markPastes = { on: "\x1b[?2004h", off: "\x1b[?2004l" };
/** Most text that waits: a paste that never ends, or keys during a long answer. */
const maxWaiting = 4 * 1024 * 1024;

export class Keyboard extends Readable {
  readonly #source: KeySource;
  readonly #handlers: KeyHandlers;
  readonly #decoder = new StringDecoder("utf8");
  #waiting = "";
  #isHeld = false;
  #hasEnded = false;

  constructor(source: KeySource, handlers: KeyHandlers) {
    super();
    this.#source = source;
    this.#handlers = handlers;
    source.on("data", this.#onData);
    source.on("end", this.#onEnd);
  }

  /** Keys wait from now on; ctrl-c is an interrupt. */
  hold(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.#deliver();
  }

  /** Leaves the terminal to whoever is next. */
  dispose(): void {
    this.#source.off("data", this.#onData);
    this.#source.off("end", this.#onEnd);
    this.#source.pause();
    this.destroy();
  }

  /** readline switches the terminal itself. */
  setRawMode(isRaw: boolean): void {
    this.#source.setRawMode?.(isRaw);
  }

  // Keys come when they come: what is pushed while readline listens reaches it at once.
  override _read(): void {}

  readonly #onData = (bytes: Buffer): void => {
    const text = this.#decoder.write(bytes);
    const interrupt = text.lastIndexOf(ctrlC);
    // It also ends a paste whose end got lost.
    if (interrupt >= 0 && (this.#isHeld || this.#waiting.startsWith(pasteStart))) {
      this.#waiting = text.slice(interrupt + 1);
      if (this.#isHeld) this.#handlers.onInterrupt();
      else this.push(ctrlC);
    } else if (this.#waiting.length + text.length <= maxWaiting) this.#waiting += text;
    this.#deliver();
  };

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#deliver();
  };

  /** Passes on what may go, a line at a time: a line may begin an answer, and what follows it then waits. */
  #deliver(): void {
    while (!this.#isHeld && this.#waiting !== "") {
      if (this.#waiting.startsWith(pasteStart)) {
        const end = this.#waiting.indexOf(pasteEnd);
        if (end < 0) break;
        const text = this.#waiting.slice(pasteStart.length, end);
        this.#waiting = this.#waiting.slice(end + pasteEnd.length);
        this.#handlers.onPaste(text);
        continue;
      }
      const length = plainLength(this.#waiting);
      if (length === 0) break;
      const keys = this.#waiting.slice(0, length);
      this.#waiting = this.#waiting.slice(length);
      this.push(keys);
    }
    if (this.#hasEnded && !this.#isHeld) this.push(null);
  }
}

/** How much of `text` can go before a paste, a part of the mark of one, or behind the first line. */
function plainLength(text: string): number {
  const line = /\r\n|\r|\n/.exec(text);
  const lineLength = line === null ? text.length : line.index + line[0].length;
  const paste = text.indexOf(pasteStart);
  if (paste >= 0) return Math.min(paste, lineLength);
  if (lineLength < text.length) return lineLength;
  for (let length = pasteStart.length - 1; length > 0; length--) {
    if (text.endsWith(pasteStart.slice(0, length))) return text.length - length;
  }
  return lineLength;
}
