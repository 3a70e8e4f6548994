// Owns the fold of a generation's events into a response: its resource, and in step with it the events of its stream, so that
// the two cannot differ. An answer that is not streamed is the same fold without events.
import type { FinishReason, GenerateEvent, Usage } from "../../engines/chat.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { ResponseEvents } from "./event-text.ts";
import { type ItemPlace, OpenCall, OpenMessage, OpenReasoning } from "./open-item.ts";
import {
  type IncompleteReason,
  type ItemStatus,
  type OutputItem,
  type ResponseHead,
  type ResponseState,
  type ResponseStatus,
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

  /** One that runs in the background is queued until its first event. */
  constructor(head: ResponseHead, events: ResponseEvents, status: "queued" | "in_progress") {
    this.#head = head;
    this.#events = events;
    this.#status = status;
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

  /** As it is now. What it holds may change: to be written down at once. */
  get state(): ResponseState {
    return {
      status: this.#status,
      completedAt: this.#completedAt,
      error: this.#error,
      incomplete: this.#incomplete,
      output: this.#output,
      usage: this.#usage,
      adapterGeneration: this.#adapterGeneration,
    };
  }

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
        this.#message().append(event.text, event.logprobs);
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
    // It may be long.
    if (this.#events.areSent) this.#events.lifecycle(type, responseText(this.#head, this.state));
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
