// Body of a text completion.
import { generationFields } from "../shared/answer/adapter-generation.ts";
import type { Answer, AnswerChoice } from "../shared/answer/answer.ts";
import { textFragments, writtenLater } from "../shared/answer/json-pieces.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import { LegacyLogprobs } from "./logprobs.ts";
import type { WireCompletion, WireCompletionChoice } from "./schemas.ts";

export interface CompletionOptions {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  /** Text before each choice: the prompt if `echo` is set, else "". */
  readonly prefix: string;
  readonly wantsLogprobs: boolean;
}

/** Builds the response body. If the answer is long, jsonPieces serialises it in pieces. */
export function textCompletion(options: CompletionOptions, answer: Answer): WireCompletion {
  const logprobs = options.wantsLogprobs ? new LegacyLogprobs(options.prefix, answer) : null;
  return {
    id: options.id,
    object: "text_completion",
    created: options.created,
    model: options.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) =>
      completionChoice(choice, index, answer.isLong, options.prefix, logprobs),
    ),
    usage: wireUsage(answer.usage),
    ...generationFields(answer.adapterGeneration),
  };
}

function completionChoice(
  choice: AnswerChoice,
  index: number,
  isLong: boolean,
  prefix: string,
  logprobs: LegacyLogprobs | null,
): WireCompletionChoice {
  const texts = [prefix, choice.text];
  return {
    // A long text is serialised lazily. This avoids one copy of the prefix for each choice.
    text: isLong ? writtenLater(() => textFragments(texts)) : texts.join(""),
    index,
    logprobs: logprobs?.of(choice.logprobs) ?? null,
    finish_reason: wireFinishReason(choice.finishReason),
    // Extension of this server, because the protocol has no field for a refusal.
    ...(choice.refusal === null ? {} : { refusal: choice.refusal }),
  };
}
