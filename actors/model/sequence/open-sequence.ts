// Owns how a job becomes a sequence of the step loop: its sampling, its bounds, and what follows its tokens.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { SequenceJob } from "../../messages.ts";
import { GenerationSequence, type Subscriber } from "./generation-sequence.ts";
import { PromptLogprobs } from "./prompt-logprobs.ts";
import { ReasoningBudget } from "./reasoning-budget.ts";

/** `sequenceTokens`: most tokens of a sequence, prompt and output. Throws `invalid_value` for sampling that does not fit. */
export function openSequence(
  job: SequenceJob,
  subscriber: Subscriber,
  sampler: Sampler,
  sequenceTokens: number,
): GenerationSequence {
  const { id, prompt, promptLogprobs, reasoningBudget } = job;
  const wantsPromptLogits = promptLogprobs !== null && prompt.length > 1;
  return new GenerationSequence(
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
      subscriber,
      sampling: sampler.open(job.sampling, job.choice, prompt, job.breakers),
      thinking: reasoningBudget && new ReasoningBudget(reasoningBudget),
      promptRecords: wantsPromptLogits ? new PromptLogprobs(prompt.length, promptLogprobs ?? 0) : null,
    },
  );
}
