// Frame delivery: passes the rows of a token frame (a message with the tokens of several sequences) to the receivers of their sequences.
import { rowHasLogprobs, rowInts, type TokenFrame } from "../messages.ts";
import type { SequenceSink } from "./generation.ts";

/**
 * Passes each row of a token frame (a token, or the end of a sequence) to the receiver of its sequence. `sinks`: receivers by
 * sequence id. Rows of unknown sequences are ignored, because these have ended.
 */
export function deliverFrame(
  { rows, logprobs, cached, prompts, failed }: TokenFrame,
  sinks: ReadonlyMap<number, SequenceSink>,
): void {
  for (let at = 0; cached !== null && at < cached.length; at += 2) {
    sinks.get(cached[at] as number)?.onCached(cached[at + 1] as number);
  }
  for (const { id, records } of prompts) sinks.get(id)?.onPrompt(records);
  let float = 0;
  for (let at = 0; at < rows.length; at += rowInts) {
    const flags = rows[at + 2] as number;
    const hasLogprobs = (flags & rowHasLogprobs) !== 0;
    const sink = sinks.get(rows[at] as number);
    sink?.onToken(rows[at + 1] as number, flags, rows[at + 3] as number, hasLogprobs ? logprobs : null, float);
    // A logprob record is the chosen logprob, the count n, and n pairs (token id, logprob).
    if (hasLogprobs && logprobs) float += 2 + 2 * (logprobs[float + 1] as number);
  }
  for (const { id, error } of failed) sinks.get(id)?.onFailed(error);
}
