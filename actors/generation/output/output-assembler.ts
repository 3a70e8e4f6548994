// Output assembler: converts the text of one choice to events (reasoning, content and tool calls), with the logprobs of the
// content's tokens. Used by choice.ts, which decides when a choice ends.
import { randomUUID } from "node:crypto";
import type { LogprobRecords } from "../../../engines/logprobs.ts";
import type { OutputParser, OutputPart } from "../../../engines/text/parse/tool-format.ts";
import type { ChoiceEvent } from "./event-buffer.ts";
import { HeldLogprobs } from "./held-logprobs.ts";

export interface AssemblerOptions {
  readonly choice: number;
  /** Parser of the output; null = all text is content. */
  readonly parser: OutputParser | null;
  /** Whether the output ends with its first complete tool call. */
  readonly endsWithCall: boolean;
  /**
   * Returns why the arguments of a complete call do not match the tool's schema; null = they match. Never rejects. The field is
   * null if calls are not checked.
   */
  readonly checkCall: ((name: string, args: string) => Promise<string | null>) | null;
  /** Returns the text of a tool call in the model's format. */
  readonly writeCall: (name: string, args: string) => string;
  readonly emit: (event: ChoiceEvent) => void;
  /** Called when all checks of tool calls have ended, and the output that waited for them has been emitted. */
  readonly onSettled: () => void;
}

export class OutputAssembler {
  /** Number of complete tool calls. */
  wholeCalls = 0;
  /** Whether a tool call is being checked. Later parts of the output wait until the check has ended. */
  isChecking = false;
  readonly #waiting: OutputPart[] = [];
  readonly #options: AssemblerOptions;
  /** Logprobs of tokens whose text has not been processed yet. */
  readonly #held = new HeldLogprobs();
  /** Number of characters processed without a parser. */
  #readLength = 0;
  #callCount = 0;
  #call = { name: "", text: "" };
  readonly #ids = new Set<string>();
  /** Whether the last emitted part is content; also true at the start. If so, logprobs of tokens without text are added to the content. */
  #isContent = true;

  constructor(options: AssemblerOptions) {
    this.#options = options;
  }

  /** Whether the latest text is reasoning. */
  get isThinking(): boolean {
    return this.#options.parser?.isThinking ?? false;
  }

  /**
   * Queues the logprobs of the next token, whose text spans the characters `start` to `end`. Its record starts at index `at` of
   * `frame`.
   */
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

  /** Ends the text: emits what the parser has held back. `isCut`: the token limit has cut the text off. */
  finish(isCut: boolean): void {
    this.#takeAll(this.#options.parser?.finish(isCut) ?? []);
  }

  /** Emits the logprobs of the last tokens, which have no text and belong to the content before them. */
  finishLogprobs(): void {
    if (this.#isContent && this.#held.count > 0) this.#emitText("", this.#held.take(this.#held.count));
    this.#held.drop(this.#held.count);
  }

  #takeAll(parts: readonly OutputPart[]): void {
    // Parts are added one by one, because push() with a spread argument fails if the array is very long.
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
        // Only content has logprobs. The last token is kept, because it may also contain the beginning of content. If calls are
        // checked, this part may have waited, and tokens of later content may already be queued.
        if (this.#options.checkCall === null) this.#held.drop(this.#held.count - 1);
        this.#call.text += part.text;
        emit({ type: "tool_arguments", choice, call: this.#callCount, text: part.text });
        break;
      case "call-end":
        this.#endCall();
        break;
      case "call-failed":
        this.#failCall(part.text);
        break;
      case "call-cut":
        emit({ type: "tool_call_cut", choice, call: this.#callCount++ });
        break;
      case "cut":
        break; // A cut part is not content, so the logprobs of its tokens are dropped.
      default:
        part satisfies never;
    }
  }

  /**
   * Returns the id of a tool call: the model's id if it is unique in the choice, otherwise a new id. Tool results refer to their
   * call by this id.
   */
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
