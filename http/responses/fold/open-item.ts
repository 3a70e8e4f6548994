// Open item: the output item in progress, with one class per item type. Each change updates the item and adds the matching
// stream event. Used by fold.ts.
import { LogprobList } from "../../../engines/logprobs.ts";
import { jsonLength, wireTokenLogprobs } from "../../shared/answer/logprobs.ts";
import type { ResponseEvents } from "./event-text.ts";
import type { HeldLogprobs } from "./held-logprobs.ts";
import type {
  Annotation,
  FunctionCallItem,
  ItemStatus,
  MessageItem,
  OutputItem,
  OutputText,
  ReasoningItem,
  Refusal,
} from "./resource-schema.ts";

/** Position of an item in the output, and the item's id. */
export interface ItemPlace {
  readonly index: number;
  readonly id: string;
}

abstract class OpenItem<Item extends OutputItem> {
  protected readonly events: ResponseEvents;
  protected readonly item: Item;
  readonly #index: number;

  constructor(item: Item, index: number, events: ResponseEvents) {
    this.item = item;
    this.#index = index;
    this.events = events;
    events.event("response.output_item.added", { output_index: index, item });
  }

  close(status: ItemStatus): void {
    this.closeContent();
    this.item.status = status;
    this.events.event("response.output_item.done", { output_index: this.#index, item: this.item }, this.length);
  }

  protected abstract closeContent(): void;

  /** Approximate length of the content as JSON, in characters; 0 if it is short enough for JSON.stringify. */
  protected get length(): number {
    return 0;
  }

  protected get place() {
    return { item_id: this.item.id, output_index: this.#index };
  }
}

export class OpenReasoning extends OpenItem<ReasoningItem> {
  readonly kind = "reasoning";
  readonly #part = { type: "reasoning_text" as const, text: "" };
  readonly #head: string;

  constructor({ index, id }: ItemPlace, output: OutputItem[], events: ResponseEvents) {
    const item: ReasoningItem = {
      id,
      type: "reasoning",
      status: "in_progress",
      summary: [],
      content: [],
    };
    super(item, index, events);
    output.push(item);
    events.event("response.content_part.added", { ...this.#at, part: this.#part });
    item.content.push(this.#part);
    this.#head = events.deltaHead("response.reasoning_text.delta", this.#at);
  }

  append(text: string): void {
    this.#part.text += text;
    this.events.delta(this.#head, text);
  }

  protected closeContent(): void {
    this.events.event("response.reasoning_text.done", { ...this.#at, text: this.#part.text });
    this.events.event("response.content_part.done", { ...this.#at, part: this.#part });
  }

  get #at() {
    return { ...this.place, content_index: 0 };
  }
}

export class OpenCall extends OpenItem<FunctionCallItem> {
  readonly kind = "call";
  readonly #head: string;

  constructor(
    { index, id }: ItemPlace,
    call: { readonly id: string; readonly name: string; readonly namespace?: string },
    output: OutputItem[],
    events: ResponseEvents,
  ) {
    const item: FunctionCallItem = {
      id,
      type: "function_call",
      status: "in_progress",
      call_id: call.id,
      name: call.name,
      ...(call.namespace === undefined ? {} : { namespace: call.namespace }),
      arguments: "",
    };
    super(item, index, events);
    output.push(item);
    this.#head = events.deltaHead("response.function_call_arguments.delta", this.place);
  }

  append(text: string): void {
    this.item.arguments += text;
    this.events.delta(this.#head, text);
  }

  /** Removes a call whose text turned out not to be a call. Must not be used after an event has announced the call. */
  takeBack(output: OutputItem[]): void {
    output.splice(output.indexOf(this.item), 1);
  }

  protected closeContent(): void {
    const { name, arguments: written } = this.item;
    this.events.event("response.function_call_arguments.done", { ...this.place, name, arguments: written });
  }
}

export class OpenMessage extends OpenItem<MessageItem> {
  readonly kind = "message";
  /** Text part in progress; null if no part is open. */
  #text: OutputText | null = null;
  #head = "";
  /** Constant text at the beginning of each delta with logprobs. Deltas without logprobs begin with #head. */
  #headOfLogprobs = "";
  /**
   * Logprobs of the text part in progress. #logprobsLength counts the JSON characters of the logprobs of all parts of the
   * message.
   */
  #logprobs = new LogprobList();
  #logprobsLength = 0;

  constructor({ index, id }: ItemPlace, output: OutputItem[], events: ResponseEvents) {
    const item: MessageItem = { id, type: "message", status: "in_progress", role: "assistant", content: [] };
    super(item, index, events);
    output.push(item);
  }

  append(text: string, logprobs: HeldLogprobs | undefined): void {
    const part = this.#text ?? this.#openText();
    part.text += text;
    if (logprobs === undefined) {
      if (text !== "") this.events.delta(this.#head, text);
      return;
    }
    this.#logprobs.add(logprobs.records);
    this.#logprobsLength += jsonLength(logprobs.records);
    if (this.#logprobs.count > 0) part.logprobs = wireTokenLogprobs(logprobs.tokens, this.#logprobs);
    this.events.delta(this.#headOfLogprobs, text, logprobs);
  }

  protected override get length(): number {
    return this.#logprobsLength;
  }

  /** Text of the part in progress; "" if no part is open. */
  get text(): string {
    return this.#text?.text ?? "";
  }

  /** Adds a citation to the text part in progress. Does nothing if no text part is open. */
  cite(annotation: Annotation): void {
    const part = this.#text;
    if (part === null) return;
    const annotation_index = part.annotations.push(annotation) - 1;
    this.events.event("response.output_text.annotation.added", { ...this.#at, annotation_index, annotation });
  }

  refuse(reason: string): void {
    this.#closeText();
    const part: Refusal = { type: "refusal", refusal: "" };
    this.#begin(part);
    part.refusal = reason;
    this.events.event("response.refusal.delta", { ...this.#at, delta: reason });
    this.events.event("response.refusal.done", { ...this.#at, refusal: reason });
    this.events.event("response.content_part.done", { ...this.#at, part });
  }

  protected closeContent(): void {
    this.#closeText();
  }

  #openText(): OutputText {
    const part: OutputText = { type: "output_text", text: "", annotations: [], logprobs: [] };
    this.#begin(part);
    this.#head = this.events.deltaHead("response.output_text.delta", { ...this.#at, logprobs: [] });
    this.#headOfLogprobs = this.events.deltaHead("response.output_text.delta", this.#at);
    this.#text = part;
    this.#logprobs = new LogprobList();
    return part;
  }

  #begin(part: OutputText | Refusal): void {
    this.item.content.push(part);
    this.events.event("response.content_part.added", { ...this.#at, part });
  }

  #closeText(): void {
    const part = this.#text;
    if (part === null) return;
    this.#text = null;
    const { text, logprobs } = part;
    this.events.event("response.output_text.done", { ...this.#at, text, logprobs }, this.length);
    this.events.event("response.content_part.done", { ...this.#at, part }, this.length);
  }

  /** Identifies the latest content part in events: the item's position and id, and the part's index. */
  get #at() {
    return { ...this.place, content_index: this.item.content.length - 1 };
  }
}
