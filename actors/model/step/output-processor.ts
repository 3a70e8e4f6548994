// Output processor: converts the output of a step, row by row, to tokens in the subscribers' frames or to pooled outputs. A row
// with logits yields the next token of its sequence, and more tokens if drafted tokens are accepted or a grammar forces tokens.
// Allocates nothing per token.
import { performance } from "node:perf_hooks";
import type { Batch, StepOutput } from "../../../engines/batch.ts";
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { Finish, Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import type { Capabilities } from "../../../engines/engine.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { FrameBuilder } from "../frame.ts";
import type { GenerationSequence } from "../sequence/generation-sequence.ts";
import type { StepStatistics } from "../step-statistics.ts";
import type { Subscribers } from "../subscribers.ts";
import { type PooledJobs, PooledSequence, type ScheduledSequence } from "./pooled-jobs.ts";

/**
 * Maximum time that a step waits for the token masks of its grammars, as a fraction of the step's forward pass time. The maximum
 * is never below leastWaitMs, the time that a grammar thread needs if the forward pass has displaced it from its core. Both
 * values are chosen by hand.
 */
const waitShare = 0.25;
const leastWaitMs = 5;
/**
 * Maximum wait in ms for a token mask if the engine cannot truncate its KV cache. With such an engine, a sequence cannot skip a
 * step, so the sequence fails after this time.
 */
const longestWaitMs = 250;

export interface OutputProcessorParts {
  readonly scheduler: Scheduler<ScheduledSequence>;
  readonly pools: PooledJobs;
  readonly sampler: Sampler;
  readonly speculation: Speculation | null;
  readonly subscribers: Subscribers<GenerationSequence>;
  readonly statistics: StepStatistics;
  readonly capabilities: Capabilities;
  /** Called when a sequence has finished. */
  readonly onEnd: (sequence: GenerationSequence) => void;
  readonly onFail: (sequence: GenerationSequence, error: ErrorRecord) => void;
}

export class OutputProcessor {
  readonly #parts: OutputProcessorParts;
  /**
   * Time until which this step waits for token masks, and the later time at which a sequence fails if the engine cannot truncate
   * its KV cache. Both in ms of performance.now().
   */
  #waitUntilMs = 0;
  #failAtMs = 0;

  constructor(parts: OutputProcessorParts) {
    this.#parts = parts;
  }

  /** Processes the output of the latest batch. Its step began at `stepStarted`, and its forward pass took `engineMs`. */
  take(batch: Batch, output: StepOutput, stepStarted: number, engineMs: number): void {
    const { scheduler, pools, statistics } = this.#parts;
    const { rows } = scheduler;
    const now = performance.now();
    this.#waitUntilMs = now + Math.max(leastWaitMs, waitShare * engineMs);
    this.#failAtMs = now + longestWaitMs;
    // `rows` still contains sequences that have finished, although the scheduler's lists do not.
    for (let row = 0; row < rows.length; row++) {
      const sequence = rows[row] as ScheduledSequence;
      const position = batch.position[row] as number;
      const promptEnd = Math.min(position + (batch.length[row] as number), sequence.promptLength);
      statistics.promptTokens += Math.max(promptEnd - position, 0);
      if (sequence instanceof PooledSequence) {
        pools.take(sequence, row, batch, output);
        continue;
      }
      if (sequence.startedMs === 0) sequence.startedMs = stepStarted;
      if ((output.logitsRow[row] as number) >= 0) this.#takeRow(sequence, row, batch, output);
      sequence.draftCount = 0;
    }
  }

  /** Processes the output of one batch row: appends and counts its tokens. An error ends only the sequence of this row. */
  #takeRow(sequence: GenerationSequence, row: number, batch: Batch, output: StepOutput): void {
    const { subscribers, statistics, onEnd, onFail } = this.#parts;
    const frame = subscribers.frameOf(sequence);
    if (!frame) return;
    try {
      const { total: before, computed } = sequence;
      const finish = this.#takeTokens(sequence, row, batch, output, frame);
      const taken = sequence.total - before;
      // If the token mask is late, the sequence skips this step. A later step computes the last prompt token again and counts it.
      if (finish === "none" && sequence.computed < Math.min(computed, sequence.promptLength)) statistics.promptTokens--;
      statistics.tokens += taken;
      if (taken > 0) sequence.clock?.took(taken, performance.now());
      const isFirst = before === sequence.promptLength && taken > 0;
      if (isFirst || finish !== "none" || frame.isFull) subscribers.isUrgent = true;
      if (finish === "none") return;
      statistics.ended[finish]++;
      onEnd(sequence);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      onFail(sequence, toErrorRecord(error));
    }
  }

  /**
   * Appends the tokens of a batch row to its sequence. Returns whether they end the sequence. Throws ServerError if the grammar
   * permits no token.
   */
  #takeTokens(
    sequence: GenerationSequence,
    row: number,
    batch: Batch,
    { logits, logitsRow }: StepOutput,
    frame: FrameBuilder,
  ): Finish {
    const { matcher } = sequence;
    const position = batch.position[row] as number;
    let at = logitsRow[row] as number;
    if (sequence.live.promptRecords !== null && position < sequence.promptLength) {
      const count = (batch.logitsCount[row] as number) - sequence.draftCount;
      this.#recordPrompt(sequence, logits, at, position, count);
      if (sequence.pending > 0) return "none";
      at += count - 1;
    }
    if (sequence.forcedAt < sequence.forced.length) return this.#takeForced(sequence, logits, at, frame);
    if (matcher === null) return this.#takeSampled(sequence, logits, at, frame);
    if (this.#isAnswered(matcher)) return this.#takeMatched(sequence, matcher, logits, at, frame);
    this.#parts.scheduler.feedAgain(sequence);
    return "none";
  }

  #recordPrompt(
    sequence: GenerationSequence,
    logits: Float32Array,
    first: number,
    position: number,
    count: number,
  ): void {
    const { promptRecords } = sequence.live;
    for (let i = 0; i < count && promptRecords !== null; i++) {
      const next = position + i + 1;
      if (next >= sequence.promptLength) return;
      const token = sequence.tokens[next] as number;
      promptRecords.set(next, this.#parts.sampler.observe(logits, first + i, token, promptRecords.top));
    }
  }

  /** Samples the next token. As long as the sampled tokens match the drafted tokens, also samples the token after each drafted token. */
  #takeSampled(sequence: GenerationSequence, logits: Float32Array, first: number, frame: FrameBuilder): Finish {
    const { scheduler, sampler, speculation } = this.#parts;
    const { draft, draftCount } = sequence;
    let accepted = 0;
    let finish: Finish;
    for (;;) {
      const token = sampler.sample(sequence.live.sampling, logits, first + accepted, null);
      const isDraft = accepted < draftCount && token === draft?.[accepted];
      finish = this.#emit(sequence, token, frame);
      if (finish !== "none" || !isDraft || sequence.forced.length > sequence.forcedAt) break;
      scheduler.acceptDraft(sequence);
      accepted++;
    }
    if (draftCount > 0) speculation?.observe(sequence, draftCount, accepted);
    return finish;
  }

  /** Samples a token within the grammar's token mask, or appends the tokens that the grammar forces. */
  #takeMatched(
    sequence: GenerationSequence,
    matcher: Matcher,
    logits: Float32Array,
    at: number,
    frame: FrameBuilder,
  ): Finish {
    const { forced, mask } = matcher.allowed();
    if (forced.length > 0 && !sequence.hasForced) {
      sequence.hasForced = true;
      this.#setForced(sequence, forced.slice());
      return this.#takeForced(sequence, logits, at, frame);
    }
    const token = this.#parts.sampler.sample(sequence.live.sampling, logits, at, mask);
    const finish = this.#emit(sequence, token, frame);
    sequence.hasForced = false;
    if (finish === "none") matcher.accept(token);
    return finish;
  }

  /**
   * Returns whether the grammar's token mask has arrived in time. If not, and the engine cannot truncate its KV cache, throws,
   * because the sequence cannot skip the step.
   */
  #isAnswered(matcher: Matcher): boolean {
    if (matcher.wait(this.#waitUntilMs - performance.now())) return true;
    if (this.#parts.capabilities.truncate) return false;
    if (matcher.wait(this.#failAtMs - performance.now())) return true;
    const took = `more than ${longestWaitMs} ms for one token, and this model cannot wait for longer`;
    const message = `matching the output against this grammar takes ${took}; make the grammar simpler`;
    throw new ServerError("unsupported", message, { param: matcher.param });
  }

  /**
   * Appends forced tokens while the frame has room. If logprobs are requested, appends only one token, because only that one has
   * logits.
   */
  #takeForced(sequence: GenerationSequence, logits: Float32Array, row: number, frame: FrameBuilder): Finish {
    const { sampler } = this.#parts;
    const { sampling } = sequence.live;
    const wantsLogprobs = sampling.topLogprobs !== null;
    while (sequence.forcedAt < sequence.forced.length) {
      const token = sequence.forced[sequence.forcedAt++] as number;
      if (wantsLogprobs) sampler.observe(logits, row, token, sampling.topLogprobs ?? 0);
      sampler.force(sampling, token);
      const finish = this.#emit(sequence, token, frame);
      if (finish !== "none" || wantsLogprobs || frame.isFull) return finish;
    }
    return "none";
  }

  #setForced(sequence: GenerationSequence, tokens: Int32Array): void {
    sequence.forced = tokens;
    sequence.forcedAt = 0;
  }

  /** Appends a token to its sequence and to the frame. */
  #emit(sequence: GenerationSequence, token: number, frame: FrameBuilder): Finish {
    const { id, sampling, thinking, promptRecords } = sequence.live;
    if (sequence.total === sequence.promptLength) {
      frame.begin(id, Math.max(sequence.cachedTokens, 0), promptRecords?.take() ?? null);
    }
    const finish = this.#parts.scheduler.accept(sequence, token);
    frame.add(id, token, finish, performance.now() - sequence.startedMs);
    if (sampling.topLogprobs !== null) frame.addLogprobs(this.#parts.sampler.lastLogprobs);
    if (thinking !== null && finish === "none" && sequence.forcedAt >= sequence.forced.length) {
      const end = thinking.take(token);
      if (end !== null) this.#setForced(sequence, end);
    }
    return finish;
  }
}
