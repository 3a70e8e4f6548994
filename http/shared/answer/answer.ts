// Answer: collects the events of a generation into one complete result, from which non-streaming routes build their bodies.

import type { FinishReason, GenerateEvent, ToolCall, Usage } from "../../../engines/generation.ts";
import { LogprobList, type LogprobRecords } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { AnswerLease } from "./answer-memory.ts";
import { PIECE_LENGTH } from "./json-pieces.ts";
import { TokenJson } from "./logprobs.ts";

export interface AnswerChoice {
  readonly text: string;
  /** Reasoning that precedes the text. */
  readonly reasoning: string;
  /** Complete tool calls. A call that failed to parse is part of the text. */
  readonly toolCalls: readonly ToolCall[];
  readonly logprobs: LogprobList;
  readonly finishReason: FinishReason;
  /** Stop string that ended the text; null: none. */
  readonly stopString: string | null;
  /** Why the text violates the request's output format; null if it does not. */
  readonly refusal: string | null;
}

export interface Answer {
  readonly choices: readonly AnswerChoice[];
  /** Logprobs of the prompt's tokens; empty if the request did not ask for them. */
  readonly prompt: LogprobList;
  /** Serialiser of the tokens; null if there are no logprobs. */
  readonly tokens: TokenJson | null;
  /** Whether the JSON text is too long to be written at once. */
  readonly isLong: boolean;
  readonly usage: Usage;
  /** Version of the adapter that was used; null without an adapter. */
  readonly adapterGeneration: string | null;
}

export interface CollectOptions {
  readonly choiceCount: number;
  /** Number of characters that the route puts before the text of each choice. */
  readonly prefixLength: number;
  /** Returns the token texts of the model; called only if there are logprobs. */
  readonly texts: () => ShownTokens;
  readonly lease: AnswerLease;
}

/** Collects a generation. Throws the error that ends the generation, or queue_full if its logprobs exceed the memory limit. */
export async function collectAnswer(
  events: AsyncIterable<readonly GenerateEvent[]>,
  options: CollectOptions,
): Promise<Answer> {
  const collected = new CollectedAnswer(options);
  for await (const batch of events) {
    for (const event of batch) {
      if (event.type === "error") throw fromErrorRecord(event.error);
      if (event.type === "done") return collected.answer(event.usage);
      collected.take(event);
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

class CollectedAnswer {
  readonly #options: CollectOptions;
  readonly #choices: readonly ChoiceText[];
  readonly #prompt = new LogprobList();
  #tokens: TokenJson | null = null;
  #adapterGeneration: string | null = null;

  constructor(options: CollectOptions) {
    this.#options = options;
    this.#choices = Array.from({ length: options.choiceCount }, () => new ChoiceText());
  }

  take(event: Exclude<GenerateEvent, { readonly type: "done" | "error" }>): void {
    if ("logprobs" in event) this.#hold(event.logprobs);
    if (event.type === "prompt") this.#prompt.add(event.logprobs);
    else if (event.type === "begin") this.#adapterGeneration = event.adapterGeneration ?? null;
    else this.#choices[event.choice]?.take(event);
  }

  answer(usage: Usage): Answer {
    const { prefixLength } = this.#options;
    const length = this.#choices.reduce((sum, choice) => sum + prefixLength + choice.length, 0);
    return {
      choices: this.#choices,
      prompt: this.#prompt,
      tokens: this.#tokens,
      isLong: this.#tokens !== null || length > PIECE_LENGTH,
      usage,
      adapterGeneration: this.#adapterGeneration,
    };
  }

  #hold({ floats }: LogprobRecords): void {
    this.#tokens ??= TokenJson.of(this.#options.texts());
    this.#options.lease.add(floats.byteLength);
  }
}

class ChoiceText implements AnswerChoice {
  text = "";
  reasoning = "";
  readonly toolCalls: ToolCall[] = [];
  readonly logprobs = new LogprobList();
  finishReason: FinishReason = "stop";
  stopString: string | null = null;
  refusal: string | null = null;
  /** Tool call in progress; null: none. */
  #call: { readonly id: string; readonly name: string; arguments: string } | null = null;

  /** Number of characters of text, reasoning and tool calls. */
  get length(): number {
    const calls = this.toolCalls.reduce((sum, call) => sum + call.arguments.length, 0);
    return this.text.length + this.reasoning.length + calls;
  }

  take(event: ChoiceEvent): void {
    switch (event.type) {
      case "reasoning":
        this.reasoning += event.text;
        break;
      case "text":
        this.text += event.text;
        if (event.logprobs !== undefined) this.logprobs.add(event.logprobs);
        break;
      case "tool_call":
        this.#call = { id: event.id, name: event.name, arguments: "" };
        break;
      case "tool_arguments":
        if (this.#call) this.#call.arguments += event.text;
        break;
      case "tool_call_end":
        if (this.#call) this.toolCalls.push(this.#call);
        this.#call = null;
        break;
      case "tool_call_failed":
        this.text += event.text;
        this.#call = null;
        break;
      case "refusal":
        this.refusal = event.reason;
        break;
      case "finish":
        this.finishReason = event.reason;
        this.stopString = event.stopString;
        break;
      default:
        event satisfies never;
    }
  }
}
