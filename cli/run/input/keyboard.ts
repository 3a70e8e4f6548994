// Keyboard: input stream between the terminal and readline. It delivers pasted text in one piece. While an answer is generated,
// it holds back all keys except ctrl-c.
import { Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/** Input of the terminal; tests use a plain stream. */
export interface KeySource extends Readable {
  setRawMode?(isRaw: boolean): unknown;
}

export interface KeyHandlers {
  /** Called with the complete pasted text. */
  onPaste(text: string): void;
  /** Called at ctrl-c while keys are held back. */
  onInterrupt(): void;
  /** Called with the reason why typed or pasted text was dropped. */
  onDropped(reason: string): void;
}

const pasteStart = "\x1b[200~";
const pasteEnd = "\x1b[201~";
const ctrlC = "\x03";
/** Escape sequences that switch bracketed paste on and off. In this mode the terminal marks the start and end of pastes. */
export const markPastes = { on: "\x1b[?2004h", off: "\x1b[?2004l" };
/** Maximum number of characters held back: of a paste without its end sequence, or of keys typed during a long answer. */
const maxWaiting = 4 * 1024 * 1024;
const tooLong =
  "a paste, or text typed during an answer, expects at most 4 MiB; more came, and all of it was dropped: send less at once";

export class Keyboard extends Readable {
  readonly #source: KeySource;
  readonly #handlers: KeyHandlers;
  readonly #decoder = new StringDecoder("utf8");
  #waiting = "";
  /** Whether the text waiting is the end of a paste that was dropped; the rest of it is dropped, too. */
  #isInDropped = false;
  #hasDropped = false;
  #isHeld = false;
  #hasEnded = false;

  constructor(source: KeySource, handlers: KeyHandlers) {
    super();
    this.#source = source;
    this.#handlers = handlers;
    source.on("data", this.#onData);
    source.on("end", this.#onEnd);
  }

  /** Holds keys back until release(). Ctrl-c calls onInterrupt. */
  hold(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.#deliver();
  }

  /** Discards the keys that are held back. */
  forget(): void {
    this.#drop(this.#waiting);
  }

  /** Lets another program use the terminal until `work` ends. */
  async lend<T>(work: () => Promise<T>): Promise<T> {
    this.#source.pause();
    this.setRawMode(false);
    try {
      return await work();
    } finally {
      if (!this.destroyed) {
        this.setRawMode(true);
        this.#source.resume();
      }
    }
  }

  /** Stops reading the terminal. */
  dispose(): void {
    this.#source.off("data", this.#onData);
    this.#source.off("end", this.#onEnd);
    this.#source.pause();
    this.destroy();
  }

  /** Sets raw mode on the terminal; called by readline. */
  setRawMode(isRaw: boolean): void {
    this.#source.setRawMode?.(isRaw);
  }

  // This method does nothing, because #deliver pushes keys when they arrive.
  override _read(): void {}

  readonly #onData = (bytes: Buffer): void => {
    const text = this.#decoder.write(bytes);
    const interrupt = text.lastIndexOf(ctrlC);
    // Ctrl-c also ends a paste whose end sequence was lost.
    if (interrupt >= 0 && (this.#isHeld || this.#waiting.startsWith(pasteStart))) {
      this.#waiting = text.slice(interrupt + 1);
      this.#isInDropped = false;
      if (this.#isHeld) this.#handlers.onInterrupt();
      else this.push(ctrlC);
    } else if (this.#waiting.length + text.length <= maxWaiting) this.#waiting += text;
    else {
      this.#hasDropped ||= !this.#isInDropped;
      this.#drop(this.#waiting + text);
    }
    this.#deliver();
  };

  /** Drops `keys`. Of an unfinished paste, keeps as much of the end as may be a part of its end sequence. */
  #drop(keys: string): void {
    const start = keys.lastIndexOf(pasteStart);
    this.#isInDropped = start >= 0 && !keys.includes(pasteEnd, start);
    const pasted = keys.slice(start + pasteStart.length);
    this.#waiting = this.#isInDropped ? pasteStart + pasted.slice(1 - pasteEnd.length) : "";
  }

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#deliver();
  };

  /** Delivers one line at a time. A line may start an answer, and the following text is then held back. */
  #deliver(): void {
    if (this.#hasDropped && !this.#isHeld) {
      this.#hasDropped = false;
      this.#handlers.onDropped(tooLong);
    }
    while (!this.#isHeld && this.#waiting !== "") {
      if (this.#waiting.startsWith(pasteStart)) {
        const end = this.#waiting.indexOf(pasteEnd);
        if (end < 0) break;
        const text = this.#waiting.slice(pasteStart.length, end);
        this.#waiting = this.#waiting.slice(end + pasteEnd.length);
        if (!this.#isInDropped) this.#handlers.onPaste(text);
        this.#isInDropped = false;
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

/**
 * Returns the number of characters of `text` to deliver: up to the start sequence of a paste, even an incomplete one, or up to
 * the end of the first line.
 */
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
