// REPL of `troupe run`: interprets lines as commands or questions, writes answers as they arrive, and adds each completed turn
// to the conversation. Keys come from input/keyboard.ts; readline edits lines.
import { clearScreenDown, createInterface, cursorTo, type Interface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { completeCommand, isCommand, runCommand } from "./commands.ts";
import type { Conversation } from "./conversation.ts";
import { type AnswerEnd, streamAnswer, usageLine } from "./generation.ts";
import { Keyboard, type KeySource, markPastes } from "./input/keyboard.ts";
import { historyLimit, type LineHistory } from "./input/line-history.ts";
import { MessageLines } from "./input/message-lines.ts";
import { Questions } from "./input/questions.ts";
import { type Output, type OutputStream, withoutControls } from "./output.ts";

const modelPollMs = 100;

export interface ReplOptions {
  readonly inference: Pick<Inference, "generate" | "models">;
  readonly conversation: Conversation;
  readonly request: (question: string) => GenerateRequest;
  /** Converts the text of an interrupted answer to the form that is kept in the conversation. */
  readonly cutAnswer: (text: string) => string;
  readonly history: LineHistory;
  readonly input: KeySource;
  /** Terminal on which the user edits lines. */
  readonly screen: OutputStream;
  /** Output of notes about the conversation, on the same terminal. */
  readonly notes: Output;
  /** Output of answers: the same terminal, or a pipe. */
  readonly answers: Output;
}

export class Repl {
  readonly #options: ReplOptions;
  readonly #keyboard: Keyboard;
  readonly #editor: Interface;
  readonly #lines = new MessageLines();
  /** Asks the user questions while an answer is generated, such as whether a tool may run. */
  readonly questions: Questions;
  #answer: AbortController | null = null;
  /** Whether a message or command is running, so that no prompt is shown. */
  #isBusy = false;
  #isPasting = false;
  /** Whether the last key was ctrl-c at an empty prompt. Another ctrl-c then exits. */
  #isLeaving = false;

  constructor(options: ReplOptions) {
    this.#options = options;
    this.#keyboard = new Keyboard(options.input, {
      onPaste: (text) => this.#paste(text),
      onInterrupt: () => this.interrupt(),
      onDropped: (reason) => this.notice(options.notes.red(reason)),
    });
    this.#editor = createInterface({
      input: this.#keyboard,
      output: options.screen,
      terminal: true,
      history: [...options.history.lines],
      historySize: historyLimit,
      completer: (line: string) => completeCommand(line, options.conversation),
    });
    this.questions = new Questions(this.#keyboard, this.#editor, options.screen);
  }

  /** Runs the REPL. Resolves when the user exits; rejects with unexpected errors. */
  run(): Promise<void> {
    const { screen, answers } = this.#options;
    return new Promise((resolve, reject) => {
      this.#editor.on("line", (line) => this.#take(line).catch(reject));
      this.#editor.on("history", (lines) => this.#remember(lines));
      this.#editor.on("SIGINT", () => this.interrupt());
      this.#editor.on("SIGCONT", () => {
        // While the process was suspended, the shell used the terminal and may have switched off bracketed paste.
        screen.write(markPastes.on);
        this.#prompt();
      });
      this.#editor.on("close", () => {
        screen.write(markPastes.off);
        this.#answer?.abort();
        this.#keyboard.dispose();
        this.questions.answer(null);
        resolve();
      });
      answers.gone.addEventListener("abort", () => this.close(), { once: true });
      screen.write(markPastes.on);
      this.#prompt();
    });
  }

  /** Handles ctrl-c: stops the running answer. Without one, clears the typed text. Without text, exits at the second ctrl-c. */
  interrupt(): void {
    const { notes } = this.#options;
    if (this.#answer !== null) {
      this.#answer.abort();
      if (this.questions.isAsking) this.questions.answer(null);
      return;
    }
    // Commands are short and cannot be interrupted.
    if (this.#isBusy) return;
    const isNothingTyped = this.#editor.line === "" && this.#lines.isEmpty;
    if (isNothingTyped && this.#isLeaving) {
      this.close();
      return;
    }
    this.#isLeaving = isNothingTyped;
    if (isNothingTyped) notes.line(`\n${notes.dim("press ctrl-c again or ctrl-d to exit")}`);
    this.#lines.clear();
    for (const name of ["e", "u"]) this.#editor.write(null, { ctrl: true, name });
    this.#prompt();
  }

  /** Shows a line, for example a log line. Shows the prompt with the typed text again below the line. */
  notice(line: string): void {
    const { screen, notes, answers } = this.#options;
    if (this.#isBusy) {
      answers.endLine();
      notes.line(line);
      return;
    }
    cursorTo(screen, 0);
    clearScreenDown(screen);
    notes.line(line);
    this.#prompt();
  }

  close(): void {
    this.#editor.close();
  }

  #prompt(): void {
    const { notes } = this.#options;
    this.#editor.setPrompt(this.#lines.isEmpty ? notes.bold("> ") : notes.dim(". "));
    this.#editor.prompt(true);
  }

  /** Handles a paste. Complete lines are kept until the user types the next line. The last, incomplete line can be edited. */
  #paste(text: string): void {
    const plain = withoutControls(text.replaceAll(/\r\n?/g, "\n"));
    const isAnswer = this.questions.isAsking;
    this.#isPasting = !isAnswer;
    this.#editor.write(isAnswer ? plain.replaceAll("\n", " ") : plain);
    this.#isPasting = false;
    if (!isAnswer) this.#prompt();
  }

  #remember(lines: string[]): void {
    const { history } = this.#options;
    if (!this.#isPasting && !this.questions.isAsking) history.add(lines[0] ?? "");
    lines.splice(0, lines.length, ...history.lines);
  }

  async #take(line: string): Promise<void> {
    this.#isLeaving = false;
    if (this.questions.isAsking) return this.questions.answer(line);
    if (this.#isPasting) {
      this.#lines.addPasted(line);
      return;
    }
    const message = this.#lines.addTyped(line);
    if (message === null || message.text === "") {
      this.#prompt();
      return;
    }
    this.#keyboard.hold();
    this.#isBusy = true;
    const isAsked = message.isQuoted || !isCommand(message.text);
    const goesOn = isAsked ? await this.#ask(message.text) : await this.#command(message.text);
    this.#isBusy = false;
    if (!goesOn) this.close();
    // A signal may have closed the keyboard while the message or command was running.
    if (this.#keyboard.destroyed) return;
    this.#prompt();
    this.#keyboard.release();
  }

  async #command(text: string): Promise<boolean> {
    const { conversation, notes } = this.#options;
    try {
      const reply = await runCommand(text, conversation);
      if (reply !== null) notes.line(reply);
      return reply !== null;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      notes.line(notes.red(error.message));
      return true;
    }
  }

  async #ask(question: string): Promise<true> {
    const { inference, conversation, request, answers, notes } = this.#options;
    this.#answer = new AbortController();
    const { signal } = this.#answer;
    try {
      await this.#awaitModel(conversation.model, signal);
      let isThinking = false;
      const end = await streamAnswer(inference, request(question), signal, {
        answer: (text) => {
          if (isThinking) notes.endLine();
          isThinking = false;
          return answers.write(text);
        },
        thinking: (text) => {
          isThinking = true;
          return notes.write(text, (plain) => notes.dim(plain));
        },
      });
      answers.endLine();
      notes.endLine();
      this.#conclude(question, end);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.#failed(toErrorRecord(error));
    } finally {
      this.#answer = null;
    }
    return true;
  }

  /** Waits while the model is reloaded after a crash. */
  async #awaitModel(model: string, signal: AbortSignal): Promise<void> {
    const { inference, notes } = this.#options;
    const isReloading = () =>
      !signal.aborted && inference.models().some(({ id, status }) => id === model && status === "reloading");
    if (isReloading()) notes.line(notes.dim("the model is being reloaded; ctrl-c cancels the message"));
    while (isReloading()) await sleep(modelPollMs);
  }

  #conclude(question: string, { text, reason, usage, error }: AnswerEnd): void {
    const { conversation, notes } = this.#options;
    if (error !== null) {
      this.#failed(error);
      return;
    }
    const isCut = reason === null;
    const answer = isCut ? this.#options.cutAnswer(text) : text;
    if (answer === "" && isCut) {
      notes.line(notes.dim("stopped before the first token; the message is removed from the conversation"));
      return;
    }
    conversation.add({ question, answer, isCut });
    if (isCut) notes.line(notes.dim("stopped here"));
    if (reason === "length") notes.line(notes.dim(this.#lengthNote(usage?.completionTokens ?? 0)));
    if (usage !== null) notes.line(notes.dim(usageLine(usage)));
  }

  /** Returns a note with the reason why an answer was cut off after this number of tokens. */
  #lengthNote(tokens: number): string {
    const { fields, defaults } = this.#options.conversation;
    const limit = fields.max_tokens ?? defaults.maxTokens;
    return limit !== null && tokens >= limit
      ? `the answer is cut off at max_tokens; /set max_tokens N changes it`
      : "the context is full; /clear empties it";
  }

  /** Shows an error. The user's message is not added to the conversation. */
  #failed(error: ErrorRecord): void {
    const { conversation, notes } = this.#options;
    notes.line(notes.red(error.message));
    const isTooLong = error.code === "context_length_exceeded" && conversation.turns.length > 0;
    const advice = isTooLong ? "; /clear empties the context" : "";
    notes.line(notes.dim(`the message is removed from the conversation (arrow up brings it back)${advice}`));
  }
}
