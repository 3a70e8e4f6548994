// Owns what one choice's text turns out to be: pieces of text in, events of reasoning, content and calls out, with the logprobs
// of the tokens the content is made of. Called by choice.ts; it neither ends a choice nor knows tokens' ids.
import { randomUUID } from "node:crypto";
import type { ChoiceLogprob } from "../../engines/chat.ts";
import type { OutputParser, OutputPart } from "../../engines/parse/tool-format.ts";
import type { ChoiceEvent } from "./event-backlog.ts";

/** A logprob record that waits for its text. */
interface HeldLogprob {
  /** Characters of text before this token, and with it. Both are the same where it has only part of a character. */
  readonly start: number;
  readonly end: number;
  readonly logprob: ChoiceLogprob;
}

export interface ReaderOptions {
  readonly choice: number;
  /** null where all text is content. */
  readonly parser: OutputParser | null;
  /** The answer is over with its first whole call. */
  readonly endsWithCall: boolean;
  /** Says why the arguments of a whole call are not what its tool takes, or null. Never rejects. null where nothing is checked. */
  readonly checkCall: ((name: string, args: string) => Promise<string | null>) | null;
  /** What surrounds a call, where it has to be given back as text. */
  readonly writeCall: (name: string, args: string) => string;
  readonly emit: (event: ChoiceEvent) => void;
  /** A check has ended, and what had been read meanwhile has been told. */
  readonly onSettled: () => void;
}

export class AnswerReader {
  /** Calls that came out whole. */
  wholeCalls = 0;
  /** A call is being checked: what comes after it waits. */
  isChecking = false;
  readonly #waiting: OutputPart[] = [];
  readonly #options: ReaderOptions;
  #held: HeldLogprob[] = [];
  /** Characters read without a parser. */
  #readLength = 0;
  #callCount = 0;
  #call = { name: "", text: "" };
  readonly #ids = new Set<string>();
  /** What came last is content, or nothing has come: tokens without text that follow belong to it. */
  #isContent = true;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  /** What was read last belongs to thinking. */
  get isThinking(): boolean {
    return this.#options.parser?.isThinking ?? false;
  }

  /** The token whose text, which is read next, lies from character `start` to `end`. */
  note(start: number, end: number, logprob: ChoiceLogprob): void {
    this.#held.push({ start, end, logprob });
  }

  read(text: string): void {
    const { parser } = this.#options;
    if (parser !== null) {
      if (text !== "") this.#takeAll(parser.push(text));
      return;
    }
    const at = this.#readLength;
    this.#readLength += text.length;
    this.#content(text, at);
  }

  /** No text follows. */
  finish(): void {
    this.#takeAll(this.#options.parser?.finish() ?? []);
  }

  /** The last tokens had no text, and belong to the content before them. */
  finishLogprobs(): void {
    if (this.#isContent && this.#held.length > 0) this.#emitText("", this.#held);
    this.#held = [];
  }

  #takeAll(parts: readonly OutputPart[]): void {
    // Not spread: a whole long text may come as many parts.
    for (const part of parts) {
      if (this.isChecking) this.#waiting.push(part);
      else this.#take(part);
    }
  }

  #take(part: OutputPart): void {
    const { choice, emit, endsWithCall } = this.#options;
    if (endsWithCall && this.wholeCalls > 0) return;
    this.#isContent = part.kind === "content";
    switch (part.kind) {
      case "content":
        this.#content(part.text, part.at);
        break;
      case "reasoning":
        this.#forget(part.at + part.text.length);
        emit({ type: "reasoning", choice, text: part.text });
        break;
      case "call":
        this.#call = { name: part.name, text: "" };
        emit({ type: "tool_call", choice, call: this.#callCount, id: this.#idOf(part.id), name: part.name });
        break;
      case "arguments":
        // What the last token has beyond the arguments may be content.
        if (this.#held.length > 1) this.#held = this.#held.slice(-1);
        this.#call.text += part.text;
        emit({ type: "tool_arguments", choice, call: this.#callCount, text: part.text });
        break;
      case "call-end":
        this.#endCall();
        break;
      case "call-failed":
        this.#failCall(part.text);
        break;
      default:
        part satisfies never;
    }
  }

  /** A result must find its call: what the model calls it counts only where that tells it from the others. */
  #idOf(given: string | null): string {
    const id = given === null || given === "" || this.#ids.has(given) ? callId() : given;
    this.#ids.add(id);
    return id;
  }

  #endCall(): void {
    const { checkCall } = this.#options;
    if (checkCall === null) {
      this.#acceptCall();
      return;
    }
    const { name, text } = this.#call;
    this.isChecking = true;
    void checkCall(name, text).then((problem) => {
      this.isChecking = false;
      if (problem === null) this.#acceptCall();
      else this.#failCall(this.#options.writeCall(name, text));
      this.#takeAll(this.#waiting.splice(0));
      if (!this.isChecking) this.#options.onSettled();
    });
  }

  #acceptCall(): void {
    const { choice, emit } = this.#options;
    this.wholeCalls++;
    emit({ type: "tool_call_end", choice, call: this.#callCount++ });
  }

  #failCall(text: string): void {
    const { choice, emit } = this.#options;
    emit({ type: "tool_call_failed", choice, call: this.#callCount++, text });
  }

  #content(text: string, at: number): void {
    if (this.#held.length === 0) {
      if (text !== "") this.#emitText(text, []);
      return;
    }
    this.#forget(at);
    const next = this.#held.findIndex(({ start }) => start >= at + text.length);
    const count = next < 0 ? this.#held.length : next;
    const ready = this.#held.slice(0, count);
    this.#held = this.#held.slice(count);
    if (text !== "" || ready.length > 0) this.#emitText(text, ready);
  }

  /** Drops the logprobs of tokens that lie before character `at`. */
  #forget(at: number): void {
    const first = this.#held.findIndex(({ start, end }) => end > at || start >= at);
    this.#held = first < 0 ? [] : this.#held.slice(first);
  }

  #emitText(text: string, ready: readonly HeldLogprob[]): void {
    const event = { type: "text", choice: this.#options.choice, text } as const;
    if (ready.length === 0) this.#options.emit(event);
    else this.#options.emit({ ...event, logprobs: ready.map(({ logprob }) => logprob) });
  }
}

function callId(): string {
  return `call_${randomUUID().replaceAll("-", "").slice(0, 24)}`;
}
