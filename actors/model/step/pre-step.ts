// Owns what is settled before each step: which sequences sit it out because their grammar is not ready, and which get a draft.
// Used by the step loop; it runs nothing itself.
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { StepTimeModel } from "../../../engines/decoding/scheduler/step-time-model.ts";
import type { ChooseDraft } from "../../../engines/decoding/speculation/mtp-drafter.ts";
import type { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import { GenerationSequence, type PooledSequence } from "../sequence/generation-sequence.ts";

/** Made with the scheduler's estimates of what steps cost. */
export type CreateSpeculation = (cost: StepTimeModel, choose: ChooseDraft) => Speculation | null;

export interface PreparationOptions {
  /** Left out where nothing drafts. */
  readonly createSpeculation: CreateSpeculation | undefined;
  /** Most tokens of one prompt in a step. */
  readonly maxChunk: number;
}

export class PreStep {
  readonly speculation: Speculation | null;
  readonly #scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly #maxChunk: number;
  /** Sequences under a grammar. */
  readonly #matched = new Set<GenerationSequence>();
  readonly #drafted: GenerationSequence[] = [];

  constructor(
    scheduler: Scheduler<GenerationSequence | PooledSequence>,
    sampler: Sampler,
    { createSpeculation, maxChunk }: PreparationOptions,
  ) {
    const foresee: ChooseDraft = (sequence, logits, row) =>
      sequence instanceof GenerationSequence
        ? sampler.foresee(sequence.live.sampling, logits, row, sequence.draftCount)
        : -1;
    this.#scheduler = scheduler;
    this.#maxChunk = maxChunk;
    this.speculation = createSpeculation?.(scheduler.cost, foresee) ?? null;
  }

  /** Whether a sequence may be waiting for its grammar. */
  get hasHeld(): boolean {
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

  /** For the step that is scheduled next. */
  prepare(): void {
    for (const sequence of this.#matched) {
      // Until the prompt's last chunk nobody asks what may come next.
      const isEarly = sequence.pending > this.#maxChunk;
      this.#scheduler.setAwaitsGrammar(sequence, !isEarly && sequence.matcher?.isReady === false);
    }
    if (this.speculation !== null) this.#draft(this.speculation);
  }

  dispose(): void {
    this.speculation?.dispose();
  }

  /** Only where no prompt needs the step. */
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
