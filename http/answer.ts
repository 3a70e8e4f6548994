// Owns the fold of a generation's events into one whole answer, which the non-streaming routes turn into their body.

import type { ChoiceLogprob, FinishReason, GenerateEvent, PromptLogprob, Usage } from "../engines/chat.ts";
import { fromErrorRecord, ServerError } from "../runtime/errors.ts";

export interface AnswerChoice {
  readonly text: string;
  readonly logprobs: readonly ChoiceLogprob[];
  readonly finishReason: FinishReason;
  /** Why the text is not what the request demanded; null where it is. */
  readonly refusal: string | null;
}

export interface Answer {
  readonly choices: readonly AnswerChoice[];
  /** Tokens of the prompt, where their logprobs were asked for. */
  readonly prompt: readonly PromptLogprob[];
  readonly usage: Usage;
}

/** Collects a generation. Throws the error it ends with, if it does. */
export async function collectAnswer(
  events: AsyncIterable<readonly GenerateEvent[]>,
  choiceCount: number,
): Promise<Answer> {
  const choices = Array.from({ length: choiceCount }, () => new ChoiceText());
  let prompt: readonly PromptLogprob[] = [];
  for await (const batch of events) {
    for (const event of batch) {
      switch (event.type) {
        case "prompt":
          prompt = event.logprobs;
          break;
        case "text":
          choices[event.choice]?.add(event.text, event.logprobs);
          break;
        case "refusal":
          choices[event.choice]?.refuse(event.reason);
          break;
        case "finish":
          choices[event.choice]?.finish(event.reason);
          break;
        case "done":
          return { choices, prompt, usage: event.usage };
        case "error":
          throw fromErrorRecord(event.error);
        default:
          event satisfies never;
      }
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

class ChoiceText implements AnswerChoice {
  text = "";
  readonly logprobs: ChoiceLogprob[] = [];
  finishReason: FinishReason = "stop";
  refusal: string | null = null;

  add(text: string, logprobs: readonly ChoiceLogprob[] | undefined): void {
    this.text += text;
    // Not spread: a whole long text may come as one event.
    for (const logprob of logprobs ?? []) this.logprobs.push(logprob);
  }

  refuse(reason: string): void {
    this.refusal = reason;
  }

  finish(reason: FinishReason): void {
    this.finishReason = reason;
  }
}
