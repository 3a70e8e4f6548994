// Questions to the user on the terminal while other input is held back, for example whether a tool may run.
import assert from "node:assert/strict";
import { createInterface, type Interface } from "node:readline";
import { type OutputStream, withoutControls } from "../output.ts";
import { Keyboard, type KeySource, markPastes } from "./keyboard.ts";

/** Questions to the user, for a command that reads nothing from the terminal except the answers. */
export interface OpenQuestions {
  readonly questions: Questions;
  close(): void;
}

/** Prepares the terminal for questions. `onInterrupt` is called at ctrl-c, even if no question is open. */
export function openQuestions(input: KeySource, screen: OutputStream, onInterrupt: () => void): OpenQuestions {
  const keyboard = new Keyboard(input, {
    onPaste: (text) => editor.write(withoutControls(text).replaceAll("\n", " ")),
    onInterrupt,
    onDropped: (reason) => void screen.write(`${reason}\n`),
  });
  const editor = createInterface({ input: keyboard, output: screen, terminal: true, historySize: 0 });
  const questions = new Questions(keyboard, editor, screen);
  keyboard.hold();
  screen.write(markPastes.on);
  editor.on("line", (line) => questions.answer(line));
  editor.on("SIGINT", () => {
    questions.answer(null);
    onInterrupt();
  });
  editor.on("close", () => {
    screen.write(markPastes.off);
    keyboard.dispose();
    questions.answer(null);
  });
  return { questions, close: () => editor.close() };
}

export class Questions {
  readonly #keyboard: Keyboard;
  readonly #editor: Interface;
  readonly #screen: OutputStream;
  #resolve: ((line: string | null) => void) | null = null;

  constructor(keyboard: Keyboard, editor: Interface, screen: OutputStream) {
    this.#keyboard = keyboard;
    this.#editor = editor;
    this.#screen = screen;
  }

  /** Whether a question is waiting for an answer. */
  get isAsking(): boolean {
    return this.#resolve !== null;
  }

  /**
   * Asks a question. Keys typed before the question are discarded, because they do not answer it. `typed`: initial text that
   * the user can edit. It must not contain control or invisible characters. Resolves to the typed line; null if the user interrupts or
   * closes the input.
   */
  ask(question: string, typed = ""): Promise<string | null> {
    assert.doesNotMatch(typed, /[\p{Cc}\p{Cf}\u2028\u2029]/u, "the line editor would execute control characters");
    if (this.#keyboard.destroyed) return Promise.resolve(null);
    this.#keyboard.forget();
    if (this.#editor.line !== "") this.#clearLine();
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.#editor.setPrompt(question);
      this.#editor.prompt();
      this.#editor.write(typed);
      this.#keyboard.release();
    });
  }

  /** Ends the question with an answer. */
  answer(line: string | null): void {
    const resolve = this.#resolve;
    this.#resolve = null;
    this.#keyboard.hold();
    if (line === null && !this.#keyboard.destroyed) this.#clearLine();
    resolve?.(line);
  }

  #clearLine(): void {
    for (const name of ["e", "u"]) this.#editor.write(null, { ctrl: true, name });
    this.#screen.write("\n");
  }

  /** Lends the terminal to another program while `work` runs. */
  async lendTerminal<T>(work: () => Promise<T>): Promise<T> {
    this.#screen.write(markPastes.off);
    try {
      return await this.#keyboard.lend(work);
    } finally {
      this.#screen.write(markPastes.on);
    }
  }
}
