// Owns turning the logprob records of frames into what events report: tokens by their text. Called by choices, and once a
// request for its prompt.
import type { PromptLogprob, TokenLogprob } from "../../engines/chat.ts";
import type { Vocabulary } from "../../engines/tokenizer/vocabulary.ts";

/** Floats of a record before its pairs: the token's own logprob, and the number of pairs. */
const headFloats = 2;

export function tokenLogprob(vocabulary: Vocabulary, token: number, logprob: number): TokenLogprob {
  return { token: vocabulary.tokenText(token), bytes: [...vocabulary.piece(token)], logprob };
}

/** The alternatives of the record at `at`, likeliest first. */
export function alternatives(vocabulary: Vocabulary, records: Float32Array, at: number): TokenLogprob[] {
  const pairs = at + headFloats;
  return Array.from({ length: records[at + 1] as number }, (_, i) =>
    tokenLogprob(vocabulary, records[pairs + 2 * i] as number, records[pairs + 2 * i + 1] as number),
  );
}

/** A prompt's tokens with their records; the first token has none. */
export function promptLogprobs(vocabulary: Vocabulary, prompt: Int32Array, records: Float32Array): PromptLogprob[] {
  let at = 0;
  return Array.from(prompt, (token, i) => {
    if (i === 0) return { ...tokenLogprob(vocabulary, token, 0), logprob: null, top: [] };
    const top = alternatives(vocabulary, records, at);
    const logprob = records[at] as number;
    at += headFloats + 2 * top.length;
    return { ...tokenLogprob(vocabulary, token, logprob), top };
  });
}
