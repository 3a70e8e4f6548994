// Owns what one choice's text turns out to be: pieces of text in, events of reasoning, content and calls out, with the logprobs
// of the tokens the content is made of. Called by choice.ts; it neither ends a choice nor knows tokens' ids.
import { randomUUID } from "node:crypto";
import type { LogprobRecords } from "../../../engines/logprobs.ts";
import type { OutputParser, OutputPart } from "../../../engines/text/parse/tool-format.ts";
import type { ChoiceEvent } from "./event-buffer.ts";
import { HeldLogprobs } from "./held-logprobs.ts";

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

export class OutputAssembler {
  /** Calls that came out whole. */
  wholeCalls = 0;
  /** A call is being checked: what comes after it waits. */
  isChecking = false;
  readonly #waiting: OutputPart[] = [];
  readonly #options: ReaderOptions;
  /** Of tokens whose text is not read yet. */
  readonly #held = new HeldLogprobs();
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

  /** The token whose text, which is read next, lies from character `start` to `end`; `frame` has its logprobs at `at`. */
  note(start: number, end: number, token: number, frame: Float32Array, at: number): void {
    this.#held.add(start, end, token, frame, at);
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
    if (this.#isContent && this.#held.count > 0) this.#emitText("", this.#held.take(this.#held.count));
    this.#held.drop(this.#held.count);
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
        this.#held.dropBefore(part.at + part.text.length);
        emit({ type: "reasoning", choice, text: part.text });
        break;
      case "call":
        this.#call = { name: part.name, text: "" };
        emit({ type: "tool_call", choice, call: this.#callCount, id: this.#idOf(part.id), name: part.name });
        break;
      case "arguments":
        // What the last token has beyond the arguments may be content.
        this.#held.drop(this.#held.count - 1);
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
    this.#held.dropBefore(at);
    const ready = this.#held.countBefore(at + text.length);
    if (ready > 0) this.#emitText(text, this.#held.take(ready));
    else if (text !== "") this.#emitText(text, null);
  }

  #emitText(text: string, logprobs: LogprobRecords | null): void {
    const event = { type: "text", choice: this.#options.choice, text } as const;
    this.#options.emit(logprobs === null ? event : { ...event, logprobs });
  }
}

function callId(): string {
  return `call_${randomUUID().replaceAll("-", "").slice(0, 24)}`;
}
