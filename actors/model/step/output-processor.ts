// Output taker: turns the output of a step into tokens in their subscribers' frames and into pooled outputs, and counts both. Used
// by the step loop after each step, row by row; allocates nothing per token.
import { performance } from "node:perf_hooks";
import type { Batch, StepOutput } from "../../../engines/batch.ts";
import type { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { type GenerationSequence, PooledSequence } from "../sequence/generation-sequence.ts";
import type { StepStatistics } from "../step-statistics.ts";
import type { Subscribers } from "../subscribers.ts";
import type { TokenProcessor } from "./token-processor.ts";

type Scheduled = GenerationSequence | PooledSequence;

export interface OutputProcessorParts {
  readonly scheduler: Scheduler<Scheduled>;
  readonly tokens: TokenProcessor;
  readonly subscribers: Subscribers;
  readonly statistics: StepStatistics;
  /** Floats of one pooled output. */
  readonly pooledLength: number;
}

/** Told what has become of a sequence; the scheduler has finished it where it ended well. */
export interface OutputWatch {
  onEnd(sequence: GenerationSequence): void;
  onFail(sequence: GenerationSequence, error: ErrorRecord): void;
}

export class OutputProcessor {
  readonly #parts: OutputProcessorParts;
  readonly #watch: OutputWatch;

  constructor(parts: OutputProcessorParts, watch: OutputWatch) {
    this.#parts = parts;
    this.#watch = watch;
  }

  /** The output of the batch last scheduled, by a step that began then and a forward pass that took `engineMs`. */
  take(batch: Batch, output: StepOutput, stepStarted: number, engineMs: number): void {
    const { scheduler, statistics, tokens } = this.#parts;
    const { rows } = scheduler;
    tokens.begin(engineMs);
    // Finished sequences leave the scheduler's lists, not `rows`.
    for (let row = 0; row < rows.length; row++) {
      const sequence = rows[row] as Scheduled;
      const position = batch.position[row] as number;
      const ofPrompt = Math.min(position + (batch.length[row] as number), sequence.promptLength) - position;
      statistics.promptTokens += Math.max(ofPrompt, 0);
      if (sequence instanceof PooledSequence) {
        this.#takePooled(sequence, output, row, position);
        continue;
      }
      if (sequence.startedMs === 0) sequence.startedMs = stepStarted;
      if ((output.logitsRow[row] as number) >= 0) this.#takeTokens(sequence, row, batch, output);
      sequence.draftCount = 0;
    }
  }

  #takePooled(sequence: PooledSequence, { pooled, pooledRow }: StepOutput, row: number, position: number): void {
    const { scheduler, pooledLength } = this.#parts;
    const at = (pooledRow[row] as number) * pooledLength;
    sequence.sink.add(pooled.subarray(at, at + pooledLength), position);
    if (sequence.pending > 0) return;
    scheduler.cancel(sequence);
    sequence.sink.done();
  }

  /** What the logits of a row make of its sequence; a failure ends that one alone. */
  #takeTokens(sequence: GenerationSequence, row: number, batch: Batch, output: StepOutput): void {
    const { subscribers, statistics, tokens } = this.#parts;
    const frame = subscribers.frameOf(sequence);
    if (!frame) return;
    try {
      const { total: before, computed } = sequence;
      const finish = tokens.take(sequence, row, batch, output, frame);
      const taken = sequence.total - before;
      // The last token of a prompt that is fed again is counted then.
      if (finish === "none" && sequence.computed < Math.min(computed, sequence.promptLength)) statistics.promptTokens--;
      statistics.tokens += taken;
      if (taken > 0) sequence.clock?.took(taken, performance.now());
      const isFirst = before === sequence.promptLength && taken > 0;
      if (isFirst || finish !== "none" || frame.isFull) subscribers.isUrgent = true;
      if (finish === "none") return;
      statistics.ended[finish]++;
      this.#watch.onEnd(sequence);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.#watch.onFail(sequence, toErrorRecord(error));
    }
  }
}
