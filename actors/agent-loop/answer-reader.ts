// Owns what one choice's text turns out to be: pieces of text in, events of reasoning, content and calls out, with the logprobs
// of the tokens the content is made of. Called by choice.ts; it neither ends a choice nor knows tokens' ids.
import { randomUUID } from "node:crypto";
import type { ChoiceLogprob } from "../../engines/chat.ts";
import type { OutputParser, OutputPart } from "../../engines/parse/tool-format.ts";
import type { ChoiceEvent } from "./event-backlog.ts";

/** A logprob record that waits for its text. */
interface HeldLogprob {
  /** Characters of text before this token. */
  readonly start: number;
  readonly logprob: ChoiceLogprob;
}

export interface ReaderOptions {
  readonly choice: number;
  /** null where all text is content. */
  readonly parser: OutputParser | null;
  /** The text begins inside thinking. */
  readonly startsThinking: boolean;
  /** Says why the arguments of a whole call are not what its tool takes, or null. */
  readonly checkCall: ((name: string, args: string) => string | null) | null;
  /** What surrounds a call, where it has to be given back as text. */
  readonly writeCall: (name: string, args: string) => string;
  readonly emit: (event: ChoiceEvent) => void;
}

export class AnswerReader {
  /** Calls that came out whole. */
  wholeCalls = 0;
  /** What was said last belongs to thinking. */
  isThinking: boolean;
  readonly #options: ReaderOptions;
  #held: HeldLogprob[] = [];
  /** Characters read without a parser. */
  #readLength = 0;
  #callCount = 0;
  #call = { name: "", text: "" };
  /** Where the last content ended: logprobs from there on still belong to it. */
  #contentEnd = 0;

  constructor(options: ReaderOptions) {
    this.#options = options;
    this.isThinking = options.startsThinking;
  }

  /** The next token's text begins at character `start`. */
  note(start: number, logprob: ChoiceLogprob): void {
    this.#held.push({ start, logprob });
  }

  read(text: string): void {
    const { parser } = this.#options;
    if (parser !== null) {
      if (text !== "") for (const part of parser.push(text)) this.#take(part);
      return;
    }
    const at = this.#readLength;
    this.#readLength += text.length;
    this.#content(text, at);
  }

  /** No text follows; `isCut` where the answer did not end by itself. */
  finish(isCut: boolean): void {
    for (const part of this.#options.parser?.finish(isCut) ?? []) this.#take(part);
  }

  /** The last tokens had no text, and belong to the content before them. */
  finishLogprobs(): void {
    const rest = this.#held.filter(({ start }) => start >= this.#contentEnd);
    if (rest.length > 0 && !this.isThinking && this.wholeCalls === 0) this.#emitText("", rest);
  }

  #take(part: OutputPart): void {
    const { choice, emit } = this.#options;
    this.isThinking = part.kind === "reasoning";
    switch (part.kind) {
      case "content":
        this.#content(part.text, part.at);
        break;
      case "reasoning":
        emit({ type: "reasoning", choice, text: part.text });
        break;
      case "call":
        this.#call = { name: part.name, text: "" };
        emit({ type: "tool_call", choice, call: this.#callCount, id: part.id ?? callId(), name: part.name });
        break;
      case "arguments":
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

  #endCall(): void {
    const { choice, emit, checkCall, writeCall } = this.#options;
    const { name, text } = this.#call;
    if (checkCall !== null && checkCall(name, text) !== null) {
      this.#failCall(writeCall(name, text));
      return;
    }
    this.wholeCalls++;
    emit({ type: "tool_call_end", choice, call: this.#callCount++ });
  }

  #failCall(text: string): void {
    const { choice, emit } = this.#options;
    emit({ type: "tool_call_failed", choice, call: this.#callCount++, text });
  }

  #content(text: string, at: number): void {
    const end = at + text.length;
    this.#contentEnd = end;
    if (this.#held.length === 0) {
      if (text !== "") this.#emitText(text, []);
      return;
    }
    const ready = this.#held.filter(({ start }) => start >= at && start < end);
    this.#held = this.#held.filter(({ start }) => start >= end);
    if (text !== "" || ready.length > 0) this.#emitText(text, ready);
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
