// Body of a text completion.

import { addedUsage } from "../../engines/usage.ts";
import { generationFields } from "../shared/answer/adapter-generation.ts";
import type { Answer, AnswerChoice } from "../shared/answer/answer.ts";
import { textFragments, writtenLater } from "../shared/answer/json-pieces.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import { LegacyLogprobs, type ShownOfTokens, tokenIds } from "./logprobs.ts";
import type { WireCompletion, WireCompletionChoice } from "./schemas.ts";

export interface CompletionHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

export interface CompletionOptions extends CompletionHead {
  /** One text per prompt: the echoed prompt that precedes each of its choices. The list is empty without `echo`. */
  readonly prefixes: readonly string[];
  readonly shows: ShownOfTokens;
}

/** Builds the response body from the answers to all prompts. If an answer is long, jsonPieces serialises it in pieces. */
export function textCompletion(options: CompletionOptions, answers: readonly Answer[]): WireCompletion {
  const adapterGeneration = answers[0]?.adapterGeneration ?? null;
  return {
    id: options.id,
    object: "text_completion",
    created: options.created,
    model: options.model,
    system_fingerprint: "local",
    choices: answers.flatMap((answer, prompt) => choicesOf(options, answer, prompt)),
    usage: wireUsage(answers.map(({ usage }) => usage).reduce(addedUsage)),
    ...generationFields(adapterGeneration),
  };
}

function choicesOf(options: CompletionOptions, answer: Answer, prompt: number): WireCompletionChoice[] {
  const prefix = options.prefixes[prompt] ?? "";
  const { shows } = options;
  const logprobs = shows.logprobs ? new LegacyLogprobs(prefix, answer, shows.namesAsIds) : null;
  const first = prompt * answer.choices.length;
  return answer.choices.map((choice, i) => ({
    ...completionChoice(choice, first + i, answer.isLong, prefix, logprobs),
    ...(shows.ids && { token_ids: tokenIds(choice.logprobs.blocks()) }),
  }));
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
