// Owns the body of a chat completion that is not streamed, and the shape of its logprobs.
import type { LogprobList } from "../../engines/logprobs.ts";
import { generationFields } from "../shared/answer/adapter-generation.ts";
import type { Answer, AnswerChoice } from "../shared/answer/answer.ts";
import { type TokenJson, wireTokenLogprobs } from "../shared/answer/logprobs.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import type { WireChatCompletion, WireChoice, WireLogprobs } from "./schemas.ts";

/** What every body and chunk of one completion repeats. */
export interface CompletionHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

/** To be written by jsonPieces where the answer is long. */
export function chatCompletion(head: CompletionHead, answer: Answer, wantsLogprobs: boolean): WireChatCompletion {
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => ({
      index,
      message: message(choice),
      logprobs: wantsLogprobs ? wireLogprobs(answer.tokens, choice.logprobs) : null,
      finish_reason: wireFinishReason(choice.finishReason),
    })),
    usage: wireUsage(answer.usage),
    ...generationFields(answer.adapterGeneration),
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

/** `tokens` null: there are none. */
function wireLogprobs(tokens: TokenJson | null, logprobs: LogprobList): WireLogprobs {
  return { content: tokens === null ? [] : wireTokenLogprobs(tokens, logprobs), refusal: null };
}
