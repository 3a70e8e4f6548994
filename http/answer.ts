// Owns the fold of a generation's events into one whole answer, which the non-streaming routes turn into their body.

import type { ChoiceLogprob, FinishReason, GenerateEvent, PromptLogprob, ToolCall, Usage } from "../engines/chat.ts";
import { fromErrorRecord, ServerError } from "../runtime/errors.ts";

export interface AnswerChoice {
  readonly text: string;
  /** What was thought before. */
  readonly reasoning: string;
  /** Whole calls; what was to be one and is none is part of the text. */
  readonly toolCalls: readonly ToolCall[];
  readonly logprobs: readonly ChoiceLogprob[];
  readonly finishReason: FinishReason;
  /** The stop string that ended it, if one did. */
  readonly stopString: string | null;
  /** Why the text is not what the request demanded; null where it is. */
  readonly refusal: string | null;
}

export interface Answer {
  readonly choices: readonly AnswerChoice[];
  /** Tokens of the prompt, where their logprobs were asked for. */
  readonly prompt: readonly PromptLogprob[];
  readonly usage: Usage;
  /** Of the adapter it was answered with; null for the model alone. */
  readonly adapterGeneration: string | null;
}

/** Collects a generation. Throws the error it ends with, if it does. */
export async function collectAnswer(
  events: AsyncIterable<readonly GenerateEvent[]>,
  choiceCount: number,
): Promise<Answer> {
  const choices = Array.from({ length: choiceCount }, () => new ChoiceText());
  let prompt: readonly PromptLogprob[] = [];
  let adapterGeneration: string | null = null;
  for await (const batch of events) {
    for (const event of batch) {
      switch (event.type) {
        case "prompt":
          prompt = event.logprobs;
          break;
        case "begin":
          adapterGeneration = event.adapterGeneration ?? null;
          break;
        case "reasoning":
        case "text":
        case "tool_call":
        case "tool_arguments":
        case "tool_call_end":
        case "tool_call_failed":
        case "refusal":
        case "finish":
          choices[event.choice]?.take(event);
          break;
        case "done":
          return { choices, prompt, usage: event.usage, adapterGeneration };
        case "error":
          throw fromErrorRecord(event.error);
        default:
          event satisfies never;
      }
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

class ChoiceText implements AnswerChoice {
  text = "";
  reasoning = "";
  readonly toolCalls: ToolCall[] = [];
  readonly logprobs: ChoiceLogprob[] = [];
  finishReason: FinishReason = "stop";
  stopString: string | null = null;
  refusal: string | null = null;
  /** The call that is being written. */
  #call: { readonly id: string; readonly name: string; arguments: string } | null = null;

  take(event: ChoiceEvent): void {
    switch (event.type) {
      case "reasoning":
        this.reasoning += event.text;
        break;
      case "text":
        this.text += event.text;
        // Not spread: a whole long text may come as one event.
        for (const logprob of event.logprobs ?? []) this.logprobs.push(logprob);
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
