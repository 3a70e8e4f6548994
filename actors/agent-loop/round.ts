// Round: one generation of a run. It hides calls of server tools from the client's events, and collects the model's output for
// the prompt of the next round.
import { randomUUID } from "node:crypto";
import type { ChatMessage, GenerateEvent, ToolCall, Usage } from "../../engines/generation.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";

type FinishEvent = Extract<GenerateEvent, { readonly type: "finish" }>;

/** A tool call of the model. `runsHere`: whether the server runs the tool. */
export interface RoundCall extends ToolCall {
  readonly runsHere: boolean;
}

interface OpenCall {
  readonly id: string;
  readonly name: string;
  readonly runsHere: boolean;
  arguments: string;
}

export interface RoundOptions {
  readonly isFirst: boolean;
  /** Number of client calls in the earlier rounds of the run. */
  readonly earlierClientCalls: number;
  /**
   * Ids of all calls of the run so far; the round adds its own. A repeated id is replaced by a new one, because some models
   * restart the numbering of calls in each generation.
   */
  readonly usedIds: Set<string>;
  /** Returns whether the server runs the tool of this name. */
  readonly runsHere: (name: string) => boolean;
}

export class Round {
  readonly #options: RoundOptions;
  #text = "";
  #reasoning = "";
  readonly #calls: RoundCall[] = [];
  #open: OpenCall | null = null;
  #clientCalls: number;
  #finish: FinishEvent | null = null;
  usage: Usage | null = null;
  error: ErrorRecord | null = null;

  constructor(options: RoundOptions) {
    this.#options = options;
    this.#clientCalls = options.earlierClientCalls;
  }

  /** Text that the model wrote, without reasoning and tool calls. */
  get text(): string {
    return this.#text;
  }

  /** Complete calls, in order. */
  get calls(): readonly RoundCall[] {
    return this.#calls;
  }

  /** Number of client calls of the run so far. */
  get clientCalls(): number {
    return this.#clientCalls;
  }

  /** Event that ended the generation; null = the generation is still running, or has ended with an error. */
  get finish(): FinishEvent | null {
    return this.#finish;
  }

  /** Whether the generation ended before the model had finished. */
  get isCut(): boolean {
    return this.#finish?.reason === "length" || this.#finish?.reason === "cancelled";
  }

  /** The assistant's message for the prompt of the next round. */
  get message(): ChatMessage {
    const toolCalls = this.#calls.map(({ id, name, arguments: args }) => ({ id, name, arguments: args }));
    return {
      role: "assistant",
      content: this.#text,
      ...(this.#reasoning === "" ? {} : { reasoning: this.#reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    };
  }

  /** Processes a batch of events. Returns the events that are sent to the client now. */
  take(batch: readonly GenerateEvent[]): readonly GenerateEvent[] {
    return batch.flatMap((event) => this.#passed(event));
  }

  #passed(event: GenerateEvent): readonly GenerateEvent[] {
    switch (event.type) {
      case "begin":
        return this.#options.isFirst ? [event] : [];
      case "prompt":
        return this.#options.isFirst ? [event] : [];
      case "reasoning":
        this.#reasoning += event.text;
        return [event];
      case "text":
        this.#text += event.text;
        return [event];
      case "refusal":
        return [event];
      case "tool_call":
        return this.#opened(event);
      case "tool_arguments":
        if (this.#open !== null) this.#open.arguments += event.text;
        return this.#ofClient(event);
      case "tool_call_end":
        return this.#ended(event);
      case "tool_call_failed":
        return this.#failed(event);
      case "tool_call_cut":
        return this.#ofClient(event);
      case "finish":
        this.#finish = event;
        return [];
      case "done":
        this.usage = event.usage;
        return [];
      case "error":
        this.error = event.error;
        return [];
      default:
        return event satisfies never;
    }
  }

  #opened(event: Extract<GenerateEvent, { readonly type: "tool_call" }>): readonly GenerateEvent[] {
    const { name } = event;
    const { usedIds } = this.#options;
    const id = usedIds.has(event.id) ? `call_${randomUUID().replaceAll("-", "")}` : event.id;
    usedIds.add(id);
    const runsHere = this.#options.runsHere(name);
    this.#open = { id, name, runsHere, arguments: "" };
    if (!runsHere) this.#clientCalls++;
    return this.#ofClient({ ...event, id });
  }

  #ended(event: GenerateEvent & { readonly call: number }): readonly GenerateEvent[] {
    if (this.#open !== null) this.#calls.push(this.#open);
    return this.#ofClient(event);
  }

  /** Returns the events of an invalid call. A call of a server tool becomes text, because the client has received no part of it. */
  #failed(event: Extract<GenerateEvent, { readonly type: "tool_call_failed" }>): readonly GenerateEvent[] {
    this.#text += event.text;
    if (this.#open?.runsHere === false) return this.#ofClient(event);
    return [{ type: "text", choice: event.choice, text: event.text }];
  }

  /** Returns an event of the current call, renumbered among the client calls of the run; empty if the server runs the call. */
  #ofClient<E extends GenerateEvent & { readonly call: number }>(event: E): readonly E[] {
    if (this.#open === null || this.#open.runsHere) return [];
    return [{ ...event, call: this.#clientCalls - 1 }];
  }
}
