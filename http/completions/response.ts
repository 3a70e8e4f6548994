// Owns the body of a text completion, and the older shape of logprobs this protocol has.
import type { ChoiceLogprob, PromptLogprob } from "../../engines/chat.ts";
import { generationFields } from "../adapter-generation.ts";
import type { Answer, AnswerChoice } from "../answer.ts";
import { wireLogprob } from "../logprobs.ts";
import { wireFinishReason, wireUsage } from "../usage.ts";
import type { WireCompletion, WireCompletionChoice, WireLegacyLogprobs } from "./schemas.ts";

export interface CompletionOptions {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  /** Text put before each choice: the prompt, if it was to be echoed. */
  readonly prefix: string;
  readonly wantsLogprobs: boolean;
}

export function textCompletion(options: CompletionOptions, answer: Answer): WireCompletion {
  return {
    id: options.id,
    object: "text_completion",
    created: options.created,
    model: options.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => completionChoice(choice, index, answer, options)),
    usage: wireUsage(answer.usage),
    ...generationFields(answer.adapterGeneration),
  };
}

function completionChoice(
  choice: AnswerChoice,
  index: number,
  answer: Answer,
  options: CompletionOptions,
): WireCompletionChoice {
  const { prefix, wantsLogprobs } = options;
  return {
    text: prefix + choice.text,
    index,
    logprobs: wantsLogprobs ? legacyLogprobs(prefix, answer.prompt, choice.logprobs) : null,
    finish_reason: wireFinishReason(choice.finishReason),
    // Ours, and there only where it says something: this protocol has no other place for it.
    ...(choice.refusal === null ? {} : { refusal: choice.refusal }),
  };
}

/** Logprobs of the text: those of the prompt first, where it is echoed. */
function legacyLogprobs(
  prefix: string,
  prompt: readonly PromptLogprob[],
  completion: readonly ChoiceLogprob[],
): WireLegacyLogprobs {
  const tokens = [...prompt, ...completion];
  return {
    tokens: tokens.map(({ token }) => token),
    token_logprobs: tokens.map(({ logprob }) => (logprob === null ? null : wireLogprob(logprob))),
    top_logprobs: tokens.map(legacyAlternatives),
    text_offset: textOffsets(prefix, prompt, completion),
  };
}

/** By token, the one that was chosen among them. */
function legacyAlternatives({ token, logprob, top }: PromptLogprob): Record<string, number> | null {
  if (logprob === null) return null;
  const pairs = top.map((other) => [other.token, wireLogprob(other.logprob)] as const);
  return Object.fromEntries([...pairs, [token, wireLogprob(logprob)]]);
}

/**
 * Where each token begins in the text. The prompt's are counted back from its end: what the model saw of it may begin later,
 * where it was cut, or with a space of its own.
 */
function textOffsets(prefix: string, prompt: readonly PromptLogprob[], completion: readonly ChoiceLogprob[]): number[] {
  const prefixLength = Array.from(prefix).length;
  const promptLength = prompt.reduce((sum, { bytes }) => sum + characterStarts(bytes), 0);
  let offset = prefixLength - promptLength;
  return [...prompt, ...completion].map(({ bytes }) => {
    const start = offset;
    offset += characterStarts(bytes);
    return Math.max(start, 0);
  });
}

// Offsets count characters (code points), and a token may hold part of one: a UTF-8 byte that does not continue a
// character starts one.
function characterStarts(bytes: readonly number[]): number {
  let count = 0;
  for (const byte of bytes) if ((byte & 0xc0) !== 0x80) count++;
  return count;
}
