// Owns the body of a chat completion that is not streamed, and the shape of its logprobs.
import type { ChoiceLogprob } from "../../engines/chat.ts";
import { generationFields } from "../adapter-generation.ts";
import type { Answer, AnswerChoice } from "../answer.ts";
import { wireTokenLogprobs } from "../logprobs.ts";
import { wireFinishReason, wireUsage } from "../usage.ts";
import type { WireChatCompletion, WireChoice, WireLogprobs } from "./schemas.ts";

/** What every body and chunk of one completion repeats. */
export interface CompletionHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

export function chatCompletion(head: CompletionHead, answer: Answer, wantsLogprobs: boolean): WireChatCompletion {
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => completionChoice(choice, index, wantsLogprobs)),
    usage: wireUsage(answer.usage),
    ...generationFields(answer.adapterGeneration),
  };
}

function completionChoice(choice: AnswerChoice, index: number, wantsLogprobs: boolean): WireChoice {
  return {
    index,
    message: message(choice),
    logprobs: wantsLogprobs ? wireLogprobs(choice.logprobs) : null,
    finish_reason: wireFinishReason(choice.finishReason),
  };
}

function message({ text, reasoning, toolCalls, refusal }: AnswerChoice): WireChoice["message"] {
  const calls = toolCalls.map(({ id, name, arguments: args }) => {
    return { id, type: "function" as const, function: { name, arguments: args } };
  });
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
  };
}

export function wireLogprobs(logprobs: readonly ChoiceLogprob[]): WireLogprobs {
  return { content: wireTokenLogprobs(logprobs), refusal: null };
}
