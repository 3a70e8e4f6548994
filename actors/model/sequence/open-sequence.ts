// Opening a sequence: creates the generation sequence of a job, with its sampling, limits, reasoning budget and logprobs.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { SequenceJob } from "../../messages.ts";
import { GenerationSequence, type Subscriber } from "./generation-sequence.ts";
import { PromptLogprobs } from "./prompt-logprobs.ts";
import { ReasoningBudget } from "./reasoning-budget.ts";

/** Creates the sequence. Throws `invalid_value` for invalid sampling settings and unknown stop tokens. */
export function openSequence(
  job: SequenceJob,
  subscriber: Subscriber,
  sampler: Sampler,
  { capacity, tokens }: Pick<LoadedModel, "capacity" | "tokens">,
): GenerationSequence {
  const { id, prompt, promptLogprobs, reasoningBudget, spans = [] } = job;
  // The sampling penalties count tokens, so placeholders of images and audio (negative) are removed.
  const text = spans.length === 0 ? prompt : prompt.filter((token) => token >= 0);
  // A default limit may exceed the room that the prompt leaves in the context.
  const room = Math.max(capacity.sequenceTokens - prompt.length, 1);
  const stopTokens = checkedStopTokens(job.stopTokens, sampler.vocabSize);
  const ends = job.ignoreEos ? stopTokens : Int32Array.of(...tokens.endOfGeneration, ...stopTokens);
  const banned = job.minNewTokens > 0 && ends.length > 0 ? { tokens: ends, until: job.minNewTokens } : null;
  const wantsPromptLogits = promptLogprobs !== null && prompt.length > 1;
  const thinking = reasoningBudget && new ReasoningBudget(reasoningBudget);
  const sequence = new GenerationSequence(
    {
      client: job.client,
      // Only the first choice has a queue timeout, because the other choices may have to wait until the first one ends.
      hasQueueLimit: job.choice === 0,
      prompt,
      maxNewTokens: Math.min(job.maxNewTokens ?? room, room),
      ignoreEos: job.ignoreEos,
      minNewTokens: job.minNewTokens,
      ...(stopTokens.length > 0 && { stopTokens }),
      adapter: job.adapter,
      priority: job.priority,
      isPooled: false,
      wantsPromptLogits,
      spans,
    },
    {
      id,
      subscriber,
      sampling: sampler.open(job.sampling, job.choice, text, job.breakers, banned),
      thinking,
      promptRecords: wantsPromptLogits ? new PromptLogprobs(prompt.length, promptLogprobs ?? 0) : null,
    },
  );
  sequence.forced = thinking?.start() ?? sequence.forced;
  return sequence;
}

function checkedStopTokens(tokens: readonly number[], vocabSize: number): Int32Array {
  for (const token of tokens) {
    if (Number.isInteger(token) && token >= 0 && token < vocabSize) continue;
    const message = `stop_token_ids names token ${token}; this model's token ids are integers from 0 to ${vocabSize - 1}`;
    throw new ServerError("invalid_value", message, { param: "stop_token_ids" });
  }
  return Int32Array.from(tokens);
}
