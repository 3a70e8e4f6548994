// Owns what a sequence must be to be taken: the refusals that need no queue. Used by the scheduler only.
import { ServerError } from "../../../runtime/errors.ts";
import type { KvModel } from "../kv/prefix-cache.ts";
import type { Sequence } from "./sequence.ts";

/** Throws `invalid_value`, `context_length_exceeded` or `unsupported`. */
export function checkSequence(
  { promptLength, tokens, adapter, isPooled }: Sequence,
  { capacity, capabilities }: KvModel,
  maxBatchTokens: number,
): void {
  if (promptLength === 0) {
    throw new ServerError("invalid_value", "the prompt is empty; expected at least one token", { param: "prompt" });
  }
  if (tokens.length > capacity.sequenceTokens) {
    throw new ServerError(
      "context_length_exceeded",
      `prompt (${promptLength} tokens) and max_tokens (${tokens.length - promptLength}) ` +
        `exceed the ${capacity.sequenceTokens} tokens a sequence of this model may hold`,
    );
  }
  if (capabilities.wholeSequences && promptLength > maxBatchTokens) {
    throw new ServerError(
      "context_length_exceeded",
      `the input is ${promptLength} tokens; this model computes an input at once, and a step takes ${maxBatchTokens}: ` +
        "shorten it or raise max_num_batched_tokens",
    );
  }
  if (isPooled && capabilities.pooling === null) {
    throw new ServerError("unsupported", "this model has no pooled outputs (embeddings)", { param: "model" });
  }
  if (!isPooled && !capabilities.generates) {
    throw new ServerError("unsupported", "this model generates no text", { param: "model" });
  }
  if (adapter !== 0 && capabilities.adaptersPerStep === 0) {
    throw new ServerError("unsupported", "this model was loaded without adapters", { param: "adapter" });
  }
}
