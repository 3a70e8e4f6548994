// Opening a sequence: creates the generation sequence of a job, with its sampling, limits, reasoning budget and logprobs.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { SequenceJob } from "../../messages.ts";
import { GenerationSequence, type Subscriber } from "./generation-sequence.ts";
import { PromptLogprobs } from "./prompt-logprobs.ts";
import { ReasoningBudget } from "./reasoning-budget.ts";

/** `sequenceTokens`: maximum number of prompt and output tokens. Throws `invalid_value` for invalid sampling settings. */
export function openSequence(
  job: SequenceJob,
  subscriber: Subscriber,
  sampler: Sampler,
  sequenceTokens: number,
): GenerationSequence {
  const { id, prompt, promptLogprobs, reasoningBudget } = job;
  // A default limit may exceed the room that the prompt leaves.
  const room = Math.max(sequenceTokens - prompt.length, 1);
  const wantsPromptLogits = promptLogprobs !== null && prompt.length > 1;
  return new GenerationSequence(
    {
      client: job.client,
      // Only the first choice has a queue timeout, because the others may have to wait until the first one ends.
      hasQueueLimit: job.choice === 0,
      prompt,
      maxNewTokens: Math.min(job.maxNewTokens ?? room, room),
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
