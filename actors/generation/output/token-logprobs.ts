// Prompt logprobs: converts the records from the model's worker to the records of an event.
import { type LogprobRecords, recordHead } from "../../../engines/logprobs.ts";

/** Returns one record per prompt token. The record of the first token is empty, because this token has no logprob. */
export function promptLogprobs(prompt: Int32Array, sent: Float32Array): LogprobRecords {
  const stride = prompt.length > 1 ? sent.length / (prompt.length - 1) : 0;
  const floats = new Float32Array(recordHead * prompt.length + sent.length);
  let used = 0;
  prompt.forEach((token, i) => {
    const at = (i - 1) * stride;
    const alternatives = i === 0 ? 0 : (sent[at + 1] as number);
    floats[used] = token;
    if (i > 0) floats.set(sent.subarray(at, at + recordHead - 1 + 2 * alternatives), used + 1);
    used += recordHead + 2 * alternatives;
  });
  return { count: prompt.length, floats: floats.slice(0, used) };
}
