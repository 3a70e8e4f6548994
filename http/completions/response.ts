// Owns the body of a text completion, and the older shape of logprobs this protocol has.
import type { ChoiceLogprob } from "../../engines/chat.ts";
import type { Answer, AnswerChoice } from "../answer.ts";
import { wireFinishReason, wireLogprob, wireUsage } from "../usage.ts";

export interface CompletionOptions {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  /** Text put before each choice: the prompt, if it was to be echoed. */
  readonly prefix: string;
  readonly wantsLogprobs: boolean;
}

export function textCompletion(options: CompletionOptions, answer: Answer): object {
  return {
    id: options.id,
    object: "text_completion",
    created: options.created,
    model: options.model,
    system_fingerprint: "local",
    choices: answer.choices.map((choice, index) => completionChoice(choice, index, options)),
    usage: wireUsage(answer.usage),
  };
}

function completionChoice(choice: AnswerChoice, index: number, { prefix, wantsLogprobs }: CompletionOptions): object {
  return {
    text: prefix + choice.text,
    index,
    logprobs: wantsLogprobs ? legacyLogprobs(choice.logprobs) : null,
    finish_reason: wireFinishReason(choice.finishReason),
  };
}

function legacyLogprobs(tokens: readonly ChoiceLogprob[]): object {
  let offset = 0;
  const offsets = tokens.map((token) => {
    const start = offset;
    offset += characterStarts(token.bytes);
    return start;
  });
  return {
    tokens: tokens.map((token) => token.token),
    token_logprobs: tokens.map((token) => wireLogprob(token.logprob)),
    top_logprobs: tokens.map((token) =>
      Object.fromEntries(token.top.map((other) => [other.token, wireLogprob(other.logprob)])),
    ),
    text_offset: offsets,
  };
}

// Offsets count characters (code points), and a token may hold part of one: a UTF-8 byte that does not continue a
// character starts one.
function characterStarts(bytes: readonly number[]): number {
  let count = 0;
  for (const byte of bytes) if ((byte & 0xc0) !== 0x80) count++;
  return count;
}
