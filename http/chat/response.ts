// Owns the body of a chat completion that is not streamed, and the shape of its logprobs.
import type { ChoiceLogprob, TokenLogprob } from "../../engines/chat.ts";
import type { Answer, AnswerChoice } from "../answer.ts";
import { wireFinishReason, wireLogprob, wireUsage } from "../usage.ts";

/** What every body and chunk of one completion repeats. */
export interface CompletionHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

export function chatCompletion(head: CompletionHead, answer: Answer, wantsLogprobs: boolean): object {
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => completionChoice(choice, index, wantsLogprobs)),
    usage: wireUsage(answer.usage),
  };
}

function completionChoice(choice: AnswerChoice, index: number, wantsLogprobs: boolean): object {
  return {
    index,
    message: { role: "assistant", content: choice.text, refusal: choice.refusal },
    logprobs: wantsLogprobs ? wireLogprobs(choice.logprobs) : null,
    finish_reason: wireFinishReason(choice.finishReason),
  };
}

export function wireLogprobs(logprobs: readonly ChoiceLogprob[]): object {
  return {
    content: logprobs.map((token) => ({ ...wireToken(token), top_logprobs: token.top.map(wireToken) })),
    refusal: null,
  };
}

function wireToken({ token, logprob, bytes }: TokenLogprob): object {
  return { token, logprob: wireLogprob(logprob), bytes };
}
