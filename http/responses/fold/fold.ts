// Owns the fold of a generation's events into a response: its resource, and in step with it the events of its stream, so that
// the two cannot differ. An answer that is not streamed is the same fold without events.
import type { FinishReason, GenerateEvent, Usage } from "../../../engines/generation.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { PIECE_LENGTH } from "../../shared/answer/json-pieces.ts";
import type { ResponseEvents } from "./event-text.ts";
import { LogprobHolder } from "./held-logprobs.ts";
import { type ItemPlace, OpenCall, OpenMessage, OpenReasoning } from "./open-item.ts";
import {
  copyOf,
  type IncompleteReason,
  type ItemStatus,
  type OutputItem,
  type ResponseHead,
  type ResponseState,
  type ResponseStatus,
  responsePieces,
  responseText,
  wireError,
} from "./resource.ts";

/** How the last event of a stream is called, which is one of three: there is none for what was cancelled. */
const terminalEvents = {
  completed: "response.completed",
  failed: "response.failed",
  incomplete: "response.incomplete",
  cancelled: "response.incomplete",
} as const;

type EndStatus = keyof typeof terminalEvents;

export interface FoldOptions {
  readonly head: ResponseHead;
  readonly events: ResponseEvents;
  /** One that runs in the background is queued until its first event. */
  readonly status: "queued" | "in_progress";
  /** The texts of a model's tokens; asked for where there are logprobs. */
  readonly tokenTexts: (model: string) => ShownTokens;
  /** On the memory of the logprobs. */
  readonly lease: AnswerLease;
}

export class ResponseFold {
  readonly #head: ResponseHead;
  readonly #events: ResponseEvents;
  readonly #output: OutputItem[] = [];
  #open: OpenReasoning | OpenMessage | OpenCall | null = null;
  #status: ResponseStatus;
  #isEnded = false;
  #finishReason: FinishReason = "stop";
  #completedAt: number | null = null;
  #error: ErrorRecord | null = null;
  #incomplete: IncompleteReason | null = null;
  #usage: Usage | null = null;
  #adapterGeneration: string | null = null;
  readonly #logprobs: LogprobHolder;

  constructor({ head, events, status, tokenTexts, lease }: FoldOptions) {
    this.#head = head;
    this.#events = events;
    this.#status = status;
    this.#logprobs = new LogprobHolder(() => tokenTexts(head.model), lease);
    this.#lifecycle("response.created");
    this.#lifecycle(status === "queued" ? "response.queued" : "response.in_progress");
  }

  get status(): ResponseStatus {
    return this.#status;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  get output(): readonly OutputItem[] {
    return this.#output;
  }

  /** About how many characters the response comes to as JSON; 0 where JSON.stringify can write it. */
  get length(): number {
    const { byteLength } = this.#head.settings;
    return (byteLength > PIECE_LENGTH ? byteLength : 0) + this.#logprobs.length;
  }

  /** The response as it is now: JSON. */
  json(): Iterable<string> {
    return this.length === 0 ? [responseText(this.#head, this.state)] : responsePieces(this.#head, this.state);
  }

  /** As it is now. Where its length is 0, what it holds may change: to be written down at once. */
  get state(): ResponseState {
    return {
      status: this.#status,
      completedAt: this.#completedAt,
      error: this.#error,
      incomplete: this.#incomplete,
      output: this.length === 0 ? this.#output : copyOf(this.#output),
      usage: this.#usage,
      adapterGeneration: this.#adapterGeneration,
    };
  }

  /** Throws queue_full where its logprobs are too much to hold. */
  take(event: GenerateEvent): void {
    if (this.#isEnded) return;
    if (event.type === "error") {
      this.fail(event.error);
      return;
    }
    if (event.type === "begin") this.#adapterGeneration = event.adapterGeneration ?? null;
    this.#begin();
    switch (event.type) {
      case "begin":
      case "prompt":
        break; // this protocol has no place for what else they say
      case "reasoning":
        this.#reasoning().append(event.text);
        break;
      case "text":
        this.#message().append(event.text, event.logprobs && this.#logprobs.hold(event.logprobs));
        break;
      case "refusal":
        this.#message().refuse(event.reason);
        break;
      case "tool_call":
        this.#close("completed");
        this.#open = new OpenCall(this.#nextPlace("fc"), this.#shown(event), this.#output, this.#events);
        break;
      case "tool_arguments":
        if (this.#open?.kind === "call") this.#open.append(event.text);
        break;
      case "tool_call_end":
        this.#close("completed");
        break;
      case "tool_call_failed":
        this.#failCall(event.text);
        break;
      case "finish":
        this.#finish(event.reason);
        break;
      case "done":
        this.#done(event.usage);
        break;
      default:
        event satisfies never;
    }
  }

  fail(error: ErrorRecord): void {
    if (this.#isEnded) return;
    this.#error = error;
    this.#close("incomplete");
    const { code, message, param } = error;
    // The vendor's clients read the fields of the event, others those of its `error`.
    this.#events.event("error", { code, message, param: param ?? null, error: wireError(error) });
    this.#end("failed");
  }

  /** Nothing more comes of it: its client has gone, or the server goes; `cancelled` where that was asked for. */
  interrupt(status: "incomplete" | "cancelled"): void {
    if (this.#isEnded) return;
    this.#close("incomplete");
    this.#incomplete = "interrupted";
    this.#end(status);
  }

  #begin(): void {
    if (this.#status !== "queued") return;
    this.#status = "in_progress";
    this.#lifecycle("response.in_progress");
  }

  #reasoning(): OpenReasoning {
    if (this.#open?.kind === "reasoning") return this.#open;
    this.#close("completed");
    const opened = new OpenReasoning(this.#nextPlace("rs"), this.#output, this.#events);
    this.#open = opened;
    return opened;
  }

  #message(): OpenMessage {
    if (this.#open?.kind === "message") return this.#open;
    this.#close("completed");
    const opened = new OpenMessage(this.#nextPlace("msg"), this.#output, this.#events);
    this.#open = opened;
    return opened;
  }

  /** What was written stays: of an announced call as its arguments, as they came; else as text, which it then was. */
  #failCall(text: string): void {
    if (this.#open?.kind !== "call") return;
    if (this.#events.areSent) {
      this.#close("incomplete");
      return;
    }
    this.#open.takeBack(this.#output);
    this.#open = null;
    if (text !== "") this.#message().append(text, undefined);
  }

  /** Items are named by their response, so that a reference to one says where it is. */
  #nextPlace(prefix: string): ItemPlace {
    const index = this.#output.length;
    return { index, id: itemId(prefix, this.#head.id, index) };
  }

  /** A call by the names that its client knows. */
  #shown({ id, name }: { readonly id: string; readonly name: string }) {
    return { id, ...(this.#head.namespacedNames.get(name) ?? { name }) };
  }

  #close(status: ItemStatus): void {
    this.#open?.close(status);
    this.#open = null;
  }

  #finish(reason: FinishReason): void {
    this.#finishReason = reason;
    // An answer of no words is one all the same.
    if (this.#output.length === 0 && reason === "stop") this.#message().append("", undefined);
    this.#close(reason === "length" || reason === "cancelled" ? "incomplete" : "completed");
  }

  #done(usage: Usage): void {
    this.#usage = usage;
    this.#close("completed");
    if (this.#finishReason === "length") this.#incomplete = "max_output_tokens";
    if (this.#finishReason === "cancelled") this.#incomplete = "interrupted";
    if (this.#incomplete !== null) {
      this.#end("incomplete");
      return;
    }
    this.#completedAt = Math.floor(Date.now() / 1000);
    this.#end("completed");
  }

  #end(status: EndStatus): void {
    this.#status = status;
    this.#isEnded = true;
    this.#lifecycle(terminalEvents[status]);
  }

  #lifecycle(type: string): void {
    if (!this.#events.areSent) return;
    const { length, state } = this;
    const response = length === 0 ? responseText(this.#head, state) : () => responsePieces(this.#head, state);
    this.#events.lifecycle(type, response, length);
  }
}

/** The name of an item; `index` counts the output, or says `in` and counts the input. */
export function itemId(prefix: string, responseId: string, index: number | `in${number}`): string {
  return `${prefix}_${responseId.slice("resp_".length)}_${index}`;
}

/** The response whose item this is; null where the name says none. */
export function responseOfItem(id: string): string | null {
  const [, response] = /^[a-z]+_([0-9a-f]{32})_(?:in)?\d+$/.exec(id) ?? [];
  return response === undefined ? null : `resp_${response}`;
}
