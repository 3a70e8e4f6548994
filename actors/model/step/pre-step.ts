// Pre-step: before each step, decides which sequences skip the step because their token masks are not ready, and which
// sequences get a draft.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { StepTimeModel } from "../../../engines/decoding/scheduler/step-time-model.ts";
import type { ChooseDraft } from "../../../engines/decoding/speculation/mtp-drafter.ts";
import type { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import { GenerationSequence, type PooledSequence } from "../sequence/generation-sequence.ts";

/** Creates the speculation; null = no drafts. `cost`: the scheduler's estimates of step times. */
export type CreateSpeculation = (cost: StepTimeModel, choose: ChooseDraft) => Speculation | null;

export class PreStep {
  /** Drafts tokens for speculative decoding; null = no drafts. */
  readonly speculation: Speculation | null;
  readonly #scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly #maxChunk: number;
  /** Sequences that have a grammar. */
  readonly #matched = new Set<GenerationSequence>();
  readonly #drafted: GenerationSequence[] = [];

  /** `maxChunk`: maximum number of tokens of one prompt in a step. */
  constructor(
    scheduler: Scheduler<GenerationSequence | PooledSequence>,
    sampler: Sampler,
    maxChunk: number,
    createSpeculation: CreateSpeculation | undefined,
  ) {
    const foresee: ChooseDraft = (sequence, logits, row) =>
      sequence instanceof GenerationSequence
        ? sampler.foresee(sequence.live.sampling, logits, row, sequence.draftCount)
        : -1;
    this.#scheduler = scheduler;
    this.#maxChunk = maxChunk;
    this.speculation = createSpeculation?.(scheduler.cost, foresee) ?? null;
  }

  /** Whether any sequence is waiting for the token mask of its grammar. */
  get awaitsGrammar(): boolean {
    for (const { blockedBy } of this.#matched) if (blockedBy.has("grammar")) return true;
    return false;
  }

  add(sequence: GenerationSequence): void {
    if (sequence.matcher !== null) this.#matched.add(sequence);
  }

  forget(sequence: GenerationSequence): void {
    this.speculation?.forget(sequence);
    this.#matched.delete(sequence);
  }

  /** Prepares the next step. Call before the step is scheduled. */
  prepare(): void {
    for (const sequence of this.#matched) {
      // A token mask is needed only after the last chunk of the prompt.
      const isEarly = sequence.pending > this.#maxChunk;
      this.#scheduler.setAwaitsGrammar(sequence, !isEarly && sequence.matcher?.isReady === false);
    }
    if (this.speculation !== null) this.#draft(this.speculation);
  }

  dispose(): void {
    this.speculation?.dispose();
  }

  /** Drafts tokens for the sequences that decode in the next step. Drafts nothing if prompts can fill that step. */
  #draft(speculation: Speculation): void {
    const drafted = this.#drafted;
    drafted.length = 0;
    let others = 0;
    for (const sequence of this.#scheduler.nextDecodes()) {
      const canDraft = sequence instanceof GenerationSequence && sequence.matcher === null && sequence.pending === 1;
      if (canDraft) drafted.push(sequence);
      else others++;
    }
    speculation.prepare(drafted, others);
  }
}
