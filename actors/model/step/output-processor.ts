// Output processor: turns the output of a step into tokens in the subscribers' frames and into pooled outputs, row by row.
// A row with logits gives the next token of its sequence, or several if a draft was right or a grammar forces tokens.
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
import { type GenerationSequence, PooledSequence } from "../sequence/generation-sequence.ts";
import type { StepStatistics } from "../step-statistics.ts";
import type { Subscribers } from "../subscribers.ts";

/**
 * All rows of a step together wait this part of its forward pass for their grammars, and at least as long as a grammar
 * thread takes that has lost its core to the pass. Chosen by hand.
 */
const waitShare = 0.25;
const leastWaitMs = 5;
/** Longest wait on engines that cannot truncate, whose sequences cannot skip a row; a longer one fails the sequence. */
const longestWaitMs = 250;

export interface OutputProcessorParts {
  readonly scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly sampler: Sampler;
  readonly speculation: Speculation | null;
  readonly subscribers: Subscribers;
  readonly statistics: StepStatistics;
  readonly capabilities: Capabilities;
  /** The scheduler has finished the sequence. */
  readonly onEnd: (sequence: GenerationSequence) => void;
  readonly onFail: (sequence: GenerationSequence, error: ErrorRecord) => void;
}

export class OutputProcessor {
  readonly #parts: OutputProcessorParts;
  /** When this step stops waiting for grammars, and when engines that cannot truncate do. */
  #waitUntilMs = 0;
  #failAtMs = 0;

  constructor(parts: OutputProcessorParts) {
    this.#parts = parts;
  }

  /** Takes the output of the batch last scheduled; its step began at `stepStarted`, its forward pass took `engineMs`. */
  take(batch: Batch, output: StepOutput, stepStarted: number, engineMs: number): void {
    const { scheduler, statistics } = this.#parts;
    const { rows } = scheduler;
    const now = performance.now();
    this.#waitUntilMs = now + Math.max(leastWaitMs, waitShare * engineMs);
    this.#failAtMs = now + longestWaitMs;
    // Finished sequences leave the scheduler's lists, not `rows`.
    for (let row = 0; row < rows.length; row++) {
      const sequence = rows[row] as GenerationSequence | PooledSequence;
      const position = batch.position[row] as number;
      const promptEnd = Math.min(position + (batch.length[row] as number), sequence.promptLength);
      statistics.promptTokens += Math.max(promptEnd - position, 0);
      if (sequence instanceof PooledSequence) {
        this.#takePooled(sequence, output, row, position);
        continue;
      }
      if (sequence.startedMs === 0) sequence.startedMs = stepStarted;
      if ((output.logitsRow[row] as number) >= 0) this.#takeRow(sequence, row, batch, output);
      sequence.draftCount = 0;
    }
  }

  #takePooled(sequence: PooledSequence, { pooled, pooledRow }: StepOutput, row: number, position: number): void {
    const { scheduler, capabilities } = this.#parts;
    const at = (pooledRow[row] as number) * capabilities.pooledLength;
    sequence.sink.add(pooled.subarray(at, at + capabilities.pooledLength), position);
    if (sequence.pending > 0) return;
    scheduler.cancel(sequence);
    sequence.sink.done();
  }

  /** Takes the tokens of a row and counts them; a failure ends its sequence alone. */
  #takeRow(sequence: GenerationSequence, row: number, batch: Batch, output: StepOutput): void {
    const { subscribers, statistics, onEnd, onFail } = this.#parts;
    const frame = subscribers.frameOf(sequence);
    if (!frame) return;
    try {
      const { total: before, computed } = sequence;
      const finish = this.#takeTokens(sequence, row, batch, output, frame);
      const taken = sequence.total - before;
      // The last token of a prompt that is fed again is counted then.
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

  /** Returns how the row ends its sequence. Throws ServerError if its logits leave nothing to choose. */
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
      const count = batch.logitsCount[row] as number;
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

  /** Samples behind the last token, and behind each drafted token as long as the samples match the draft. */
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

  /** Samples within the mask of a grammar, or takes the tokens that it forces. */
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

  /** Whether a grammar's answer has come in time. Throws if it is late and the sequence cannot skip a row. */
  #isAnswered(matcher: Matcher): boolean {
    if (matcher.wait(this.#waitUntilMs - performance.now())) return true;
    if (this.#parts.capabilities.truncate) return false;
    if (matcher.wait(this.#failAtMs - performance.now())) return true;
    const took = `more than ${longestWaitMs} ms for one token, and this model cannot wait for longer`;
    const message = `matching the output against this grammar takes ${took}; make the grammar simpler`;
    throw new ServerError("unsupported", message, { param: matcher.param });
  }

  /** Appends forced tokens as far as the frame has room; with logprobs only the one token that has logits. */
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
