// Keyboard: filter between the terminal and readline. It passes on a paste as a whole, and holds keys back while an answer is
// generated, except ctrl-c. readline reads it as if it were the terminal.
import { Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/** Input of the terminal; a plain stream in tests. */
export interface KeySource extends Readable {
  setRawMode?(isRaw: boolean): unknown;
}

export interface KeyHandlers {
  /** The whole pasted text. */
  onPaste(text: string): void;
  /** Ctrl-c while keys are held. */
  onInterrupt(): void;
}

const pasteStart = "\x1b[200~";
const pasteEnd = "\x1b[201~";
const ctrlC = "\x03";
/** Escape sequences that switch the marking of pastes (bracketed paste) on and off. */
export const markPastes = { on: "\x1b[?2004h", off: "\x1b[?2004l" };
/** Maximum characters held back: a paste without an end, or keys during a long answer. */
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

  /** Holds keys back until release(); ctrl-c is an interrupt. */
  hold(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.#deliver();
  }

  /** Stops reading the terminal. */
  dispose(): void {
    this.#source.off("data", this.#onData);
    this.#source.off("end", this.#onEnd);
    this.#source.pause();
    this.destroy();
  }

  /** Called by readline. */
  setRawMode(isRaw: boolean): void {
    this.#source.setRawMode?.(isRaw);
  }

  // Nothing to do: #deliver pushes keys when they arrive.
  override _read(): void {}

  readonly #onData = (bytes: Buffer): void => {
    const text = this.#decoder.write(bytes);
    const interrupt = text.lastIndexOf(ctrlC);
    // Ctrl-c also ends a paste whose end mark is lost.
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

  /** Passes on one line at a time: a line may start an answer, and then the rest is held back. */
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

/** Length of the prefix of `text` to pass on: up to a paste, a partial paste mark, or the end of the first line. */
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
