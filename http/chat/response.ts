// Body of a chat completion that is not streamed, and the logprobs in it.
import type { LogprobList } from "../../engines/logprobs.ts";
import type { Sources } from "../shared/agent/web-results.ts";
import { agentFieldsOf } from "../shared/agent/wire.ts";
import { generationFields } from "../shared/answer/adapter-generation.ts";
import type { Answer, AnswerChoice } from "../shared/answer/answer.ts";
import { type TokenJson, wireTokenLogprobs } from "../shared/answer/logprobs.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import type { WireAnnotation, WireChatCompletion, WireChoice, WireLogprobs } from "./schemas.ts";

/** The fields that the body and all chunks of a completion share. */
export interface CompletionHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

/** Builds the response body. If the answer is long, jsonPieces serialises it in pieces. */
export function chatCompletion(head: CompletionHead, answer: Answer, wantsLogprobs: boolean): WireChatCompletion {
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => ({
      index,
      message: message(choice, answer.sources),
      logprobs: wantsLogprobs ? wireLogprobs(answer.tokens, choice.logprobs) : null,
      finish_reason: wireFinishReason(choice.finishReason),
    })),
    usage: wireUsage(answer.usage),
    ...generationFields(answer.adapterGeneration),
    ...agentFieldsOf(answer.run),
  };
}

function message({ text, reasoning, toolCalls, refusal }: AnswerChoice, sources: Sources): WireChoice["message"] {
  const annotations = wireAnnotations(sources, text);
  const calls = toolCalls.map(({ id, name, arguments: args }) => {
    return { id, type: "function" as const, function: { name, arguments: args } };
  });
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(annotations.length === 0 ? {} : { annotations }),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
  };
}

/** Builds the annotations of a text: one for each citation of a page in `sources`. */
export function wireAnnotations(sources: Sources, text: string): readonly WireAnnotation[] {
  return sources.citedIn(text).map(({ start, end, page: { url, title } }) => ({
    type: "url_citation",
    url_citation: { start_index: start, end_index: end, url, title },
  }));
}

/** Builds the logprobs of a choice. `tokens`: serialiser of the tokens; null if the answer has no logprobs. */
function wireLogprobs(tokens: TokenJson | null, logprobs: LogprobList): WireLogprobs {
  return { content: tokens === null ? [] : wireTokenLogprobs(tokens, logprobs), refusal: null };
}
