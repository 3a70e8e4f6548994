// Owns how a job becomes a sequence of the step loop: its sampling, its bounds, and what follows its tokens.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { SequenceJob } from "../../messages.ts";
import { type Consumer, LiveSequence } from "./live-sequence.ts";
import { PromptRecords } from "./prompt-records.ts";
import { ThinkingLimit } from "./thinking-limit.ts";

/** `sequenceTokens`: most tokens of a sequence, prompt and output. Throws `invalid_value` for sampling that does not fit. */
export function openSequence(
  job: SequenceJob,
  consumer: Consumer,
  sampler: Sampler,
  sequenceTokens: number,
): LiveSequence {
  const { id, prompt, promptLogprobs, reasoningBudget } = job;
  const wantsPromptLogits = promptLogprobs !== null && prompt.length > 1;
  return new LiveSequence(
    {
      client: job.client,
      // The other choices of a request may wait for its first one to end.
      hasQueueLimit: job.choice === 0,
      prompt,
      maxNewTokens: job.maxNewTokens ?? Math.max(sequenceTokens - prompt.length, 1),
      ignoreEos: job.ignoreEos,
      adapter: job.adapter,
      priority: job.priority,
      isPooled: false,
      wantsPromptLogits,
    },
    {
      id,
      consumer,
      sampling: sampler.open(job.sampling, job.choice, prompt, job.breakers),
      thinking: reasoningBudget && new ThinkingLimit(reasoningBudget),
      promptRecords: wantsPromptLogits ? new PromptRecords(prompt.length, promptLogprobs ?? 0) : null,
    },
  );
}
