// Owns the fold of a generation's events into one whole answer, which the non-streaming routes turn into their body.

import type { ChoiceLogprob, FinishReason, GenerateEvent, Usage } from "../engines/chat.ts";
import { fromErrorRecord, ServerError } from "../runtime/errors.ts";

export interface AnswerChoice {
  readonly text: string;
  readonly logprobs: readonly ChoiceLogprob[];
  readonly finishReason: FinishReason;
}

export interface Answer {
  readonly choices: readonly AnswerChoice[];
  readonly usage: Usage;
}

/** Collects a generation. Throws the error it ends with, if it does. */
export async function collectAnswer(
  events: AsyncIterable<readonly GenerateEvent[]>,
  choiceCount: number,
): Promise<Answer> {
  const choices = Array.from({ length: choiceCount }, () => new ChoiceText());
  for await (const batch of events) {
    for (const event of batch) {
      switch (event.type) {
        case "text":
          choices[event.choice]?.add(event.text, event.logprobs);
          break;
        case "finish":
          choices[event.choice]?.finish(event.reason);
          break;
        case "done":
          return { choices, usage: event.usage };
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

  add(text: string, logprobs: readonly ChoiceLogprob[] | undefined): void {
    this.text += text;
    if (logprobs !== undefined) this.logprobs.push(...logprobs);
  }

  finish(reason: FinishReason): void {
    this.finishReason = reason;
  }
}
