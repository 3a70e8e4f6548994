// Response fold: builds a response from generation events. It builds the resource and the stream events at the same time, so
// that they cannot differ. A response that is not streamed uses the same fold, but discards the events.
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";
import type { StoredFile } from "../../../actors/api/agent/files.ts";
import type { FinishReason, Usage } from "../../../engines/generation.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";
import { Sources } from "../../shared/agent/web-results.ts";
import { type ExtensionEvent, extensionEvent } from "../../shared/agent/wire.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { PIECE_LENGTH } from "../../shared/answer/json-pieces.ts";
import { ServerItems } from "../server-tools/output-items.ts";
import type { ResponseEvents } from "./event-text.ts";
import { LogprobHolder } from "./held-logprobs.ts";
import { type ItemPlace, OpenCall, OpenMessage, OpenReasoning } from "./open-item.ts";
import { copyOf, type ResponseHead, type ResponseState, responsePieces, responseText, wireError } from "./resource.ts";
import type { IncompleteReason, ItemStatus, OutputItem, ResponseStatus } from "./resource-schema.ts";

/** Name of the last stream event, by response status. The protocol has no such event for cancelled responses. */
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
  /** Initial status. A background response is queued until its first event. */
  readonly status: "queued" | "in_progress";
  /** Whether to send agent loop events in addition to the protocol's events. Approval requests are always sent. */
  readonly hasExtensions: boolean;
  /** Returns the token texts of a model; called only if there are logprobs. */
  readonly tokenTexts: (model: string) => ShownTokens;
  /** Counts the memory of the logprobs against the limit for all responses in progress. */
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
  readonly #hasExtensions: boolean;
  readonly #logprobs: LogprobHolder;
  readonly #serverItems: ServerItems;
  /** Session of the agent loop; null if the request does not use the loop. */
  #session: string | null = null;
  /** Pages returned by the web tools of the agent run. */
  readonly #sources = new Sources();
  /** Files produced by tools that no message cites yet. */
  #uncited: StoredFile[] = [];
  /** Whether the agent run reached its limit of tool rounds or calls. */
  #isLimited = false;

  constructor({ head, events, status, hasExtensions, tokenTexts, lease }: FoldOptions) {
    this.#head = head;
    this.#events = events;
    this.#status = status;
    this.#hasExtensions = hasExtensions;
    this.#serverItems = new ServerItems(this.#output, events, head.includesSources, (prefix) =>
      this.#nextPlace(prefix),
    );
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

  /** Approximate length of the response as JSON, in characters; 0 if it is short enough for JSON.stringify. */
  get length(): number {
    const { byteLength } = this.#head.settings;
    return (byteLength > PIECE_LENGTH ? byteLength : 0) + this.#logprobs.length;
  }

  /** Returns the current response as JSON. */
  json(): Iterable<string> {
    return this.length === 0 ? [responseText(this.#head, this.state)] : responsePieces(this.#head, this.state);
  }

  /**
   * Current state. If `length` is 0, the output in the state is not a copy, so serialise the state before the next event
   * changes it.
   */
  get state(): ResponseState {
    return {
      status: this.#status,
      completedAt: this.#completedAt,
      error: this.#error,
      incomplete: this.#incomplete,
      output: this.length === 0 ? this.#output : copyOf(this.#output),
      usage: this.#usage,
      adapterGeneration: this.#adapterGeneration,
      session: this.#session,
    };
  }

  /** Adds a generation event to the response. Throws queue_full if the logprobs exceed the memory limit. */
  take(event: AgentEvent): void {
    if (this.#isEnded) return;
    if (event.type === "error") {
      this.fail(event.error);
      return;
    }
    if (event.type === "begin") this.#adapterGeneration = event.adapterGeneration ?? null;
    if (event.type === "session") {
      this.#session = event.id;
      this.#serverItems.session = event.id;
      return;
    }
    this.#begin();
    switch (event.type) {
      case "begin":
      case "prompt":
        break; // the protocol has no stream event for these
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
      case "tool_call_cut":
        this.#close("incomplete");
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
      case "tool_progress":
        this.#close("completed");
        this.#serverItems.take(event);
        this.#sources.take(event);
        this.#extend(event);
        break;
      case "file":
        if (event.file.failure === null) this.#uncited.push(event.file);
        this.#extend(event);
        break;
      case "approval":
        this.#extend(event);
        break;
      case "rounds_reached":
        this.#isLimited = true;
        break;
      default:
        event satisfies never;
    }
  }

  fail(error: ErrorRecord): void {
    if (this.#isEnded) return;
    this.#error = error;
    this.#close("incomplete");
    // Only response.failed may follow the error event. Therefore, items of running tools are ended first.
    this.#serverItems.interrupt();
    const { code, message, param } = error;
    // OpenAI's clients read the error fields of the event itself; other clients read its field `error`.
    this.#events.event("error", { code, message, param: param ?? null, error: wireError(error) });
    this.#end("failed");
  }

  /**
   * Ends the response early, with the status `cancelled` if a client cancelled it, or `incomplete` if the client disconnects or
   * the server stops.
   */
  interrupt(status: "incomplete" | "cancelled"): void {
    if (this.#isEnded) return;
    this.#close("incomplete");
    this.#incomplete = "interrupted";
    this.#end(status);
  }

  /** Sends an extension event of the agent loop. */
  #extend(event: ExtensionEvent): void {
    if (!this.#events.areSent || (event.type !== "approval" && !this.#hasExtensions)) return;
    const { name, body } = extensionEvent(event);
    this.#events.event(name, body);
  }

  /** Adds citations of the uncited files to a message. Call it before the message is closed. */
  #citeFiles(message: OpenMessage): void {
    const place = {
      container_id: this.#serverItems.container,
      start_index: message.text.length,
      end_index: message.text.length,
    };
    for (const { id, name } of this.#uncited) {
      message.cite({ type: "container_file_citation", file_id: id, filename: name, ...place });
    }
    this.#uncited = [];
  }

  /** Adds a citation for each page URL in the text of a message. */
  #citePages(message: OpenMessage): void {
    for (const { start, end, page } of this.#sources.citedIn(message.text)) {
      message.cite({ type: "url_citation", url: page.url, title: page.title, start_index: start, end_index: end });
    }
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

  /**
   * Ends an invalid tool call and keeps the generated text. If events have announced the call, the text becomes the call's
   * arguments, otherwise message text.
   */
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

  /**
   * Returns the position and the id of the next item. The id contains the response id, so that a reference to the item can be
   * resolved.
   */
  #nextPlace(prefix: string): ItemPlace {
    const index = this.#output.length;
    return { index, id: itemId(prefix, this.#head.id, index) };
  }

  /** Returns a call with the function name and namespace that the client used. */
  #shown({ id, name }: { readonly id: string; readonly name: string }) {
    return { id, ...(this.#head.namespacedNames.get(name) ?? { name }) };
  }

  #close(status: ItemStatus): void {
    if (this.#open?.kind === "message") this.#citePages(this.#open);
    this.#open?.close(status);
    this.#open = null;
  }

  #finish(reason: FinishReason): void {
    this.#finishReason = reason;
    // A response without any output gets an empty message item.
    if (this.#output.length === 0 && reason === "stop") this.#message().append("", undefined);
    if (this.#open?.kind === "message") this.#citeFiles(this.#open);
    this.#close(reason === "length" || reason === "cancelled" ? "incomplete" : "completed");
  }

  #done(usage: Usage): void {
    this.#usage = usage;
    this.#close("completed");
    if (this.#finishReason === "length") this.#incomplete = this.#isLimited ? "max_tool_calls" : "max_output_tokens";
    if (this.#finishReason === "cancelled") this.#incomplete = "interrupted";
    if (this.#incomplete !== null) {
      this.#end("incomplete");
      return;
    }
    this.#completedAt = Math.floor(Date.now() / 1000);
    this.#end("completed");
  }

  #end(status: EndStatus): void {
    this.#serverItems.interrupt();
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

/** Returns the id of an item. `index` is its position in the output, or with the prefix `in` its position in the input. */
export function itemId(prefix: string, responseId: string, index: number | `in${number}`): string {
  return `${prefix}_${responseId.slice("resp_".length)}_${index}`;
}

/** Returns the id of the response that an item belongs to; null if the item id contains no response id. */
export function responseOfItem(id: string): string | null {
  const [, response] = /^[a-z]+_([0-9a-f]{32})_(?:in)?\d+$/.exec(id) ?? [];
  return response === undefined ? null : `resp_${response}`;
}
