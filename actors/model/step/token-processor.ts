// Token taker: turns the logits of one row into the next token of its sequence, or several where a draft was right or the
// grammar forces tokens, and writes them into the frame. Used by the step loop, row by row; allocates nothing per token.
import type { Batch, StepOutput } from "../../../engines/batch.ts";
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { Finish, Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { FrameBuilder } from "../frame.ts";
import type { GenerationSequence, PooledSequence } from "../sequence/generation-sequence.ts";

/**
 * The rows of a step wait so long for their grammars, all together: a share of the forward pass that has just run, and no
 * less than what an answer takes that has lost its core to the pass.
 */
const waitShare = 0.25;
const leastWaitMs = 5;
/** Longest wait where the engine cannot truncate, so that the sequence cannot skip its row; a longer one ends it. */
const longestWaitMs = 250;

export interface TokenProcessorParts {
  readonly scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly sampler: Sampler;
  readonly speculation: Speculation | null;
  /** Whether the engine can drop the tail of a sequence. */
  readonly truncates: boolean;
}

export class TokenProcessor {
  readonly #scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly #sampler: Sampler;
  readonly #speculation: Speculation | null;
  readonly #truncates: boolean;
  /** When this step stops waiting for grammars, and the latest when an engine that cannot truncate does. */
  #waitUntilMs = 0;
  #failAtMs = 0;

  constructor({ scheduler, sampler, speculation, truncates }: TokenProcessorParts) {
    this.#scheduler = scheduler;
    this.#sampler = sampler;
    this.#speculation = speculation;
    this.#truncates = truncates;
  }

  /** The rows of a step come next, whose forward pass took `engineMs`. */
  begin(engineMs: number): void {
    const now = performance.now();
    this.#waitUntilMs = now + Math.max(leastWaitMs, waitShare * engineMs);
    this.#failAtMs = now + longestWaitMs;
  }

  /** Returns how the row ends its sequence. Throws ServerError where its logits leave nothing to choose. */
  take(
    sequence: GenerationSequence,
    row: number,
    batch: Batch,
    { logits, logitsRow }: StepOutput,
    frame: FrameBuilder,
  ): Finish {
    let at = logitsRow[row] as number;
    const { matcher } = sequence;
    const { promptRecords } = sequence.live;
    const position = batch.position[row] as number;
    if (promptRecords !== null && position < sequence.promptLength) {
      const count = batch.logitsCount[row] as number;
      this.#recordPrompt(sequence, logits, at, position, count);
      if (sequence.pending > 0) return "none";
      at += count - 1;
    }
    if (sequence.forcedAt < sequence.forced.length) return this.#takeForced(sequence, logits, at, frame);
    if (matcher === null) return this.#takeSampled(sequence, logits, at, frame);
    if (!this.#isAnswered(matcher)) {
      this.#scheduler.feedAgain(sequence);
      return "none";
    }
    const { forced, mask } = matcher.allowed();
    if (forced.length > 0 && !sequence.hasForced) {
      sequence.hasForced = true;
      this.#setForced(sequence, forced.slice());
      return this.#takeForced(sequence, logits, at, frame);
    }
    const token = this.#sampler.sample(sequence.live.sampling, logits, at, mask);
    const finish = this.#emit(sequence, token, frame);
    sequence.hasForced = false;
    if (finish === "none") matcher.accept(token);
    return finish;
  }

  /** Whether a grammar's answer has come in time. Throws where the sequence cannot wait for it. */
  #isAnswered(matcher: Matcher): boolean {
    if (matcher.wait(this.#waitUntilMs - performance.now())) return true;
    if (this.#truncates) return false;
    if (matcher.wait(this.#failAtMs - performance.now())) return true;
    const took = `more than ${longestWaitMs} ms for one token, and this model cannot wait for longer`;
    const message = `matching the output against this grammar takes ${took}; make the grammar simpler`;
    throw new ServerError("unsupported", message, { param: matcher.param });
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
      promptRecords.set(next, this.#sampler.observe(logits, first + i, token, promptRecords.top));
    }
  }

  /** Samples behind the last token, and behind each draft as long as the samples are the draft. */
  #takeSampled(sequence: GenerationSequence, logits: Float32Array, first: number, frame: FrameBuilder): Finish {
    const { draft, draftCount } = sequence;
    let accepted = 0;
    let finish: Finish;
    for (;;) {
      const token = this.#sampler.sample(sequence.live.sampling, logits, first + accepted, null);
      const isDraft = accepted < draftCount && token === draft?.[accepted];
      finish = this.#emit(sequence, token, frame);
      if (finish !== "none" || !isDraft || sequence.forced.length > sequence.forcedAt) break;
      this.#scheduler.acceptDraft(sequence);
      accepted++;
    }
    if (draftCount > 0) this.#speculation?.observe(sequence, draftCount, accepted);
    return finish;
  }

  /** Appends what must come next, as far as the frame has room; where logprobs are wanted the one token that has logits. */
  #takeForced(sequence: GenerationSequence, logits: Float32Array, row: number, frame: FrameBuilder): Finish {
    const { sampling } = sequence.live;
    const wantsLogprobs = sampling.topLogprobs !== null;
    while (sequence.forcedAt < sequence.forced.length) {
      const token = sequence.forced[sequence.forcedAt++] as number;
      if (wantsLogprobs) this.#sampler.observe(logits, row, token, sampling.topLogprobs ?? 0);
      this.#sampler.force(sampling, token);
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
    const finish = this.#scheduler.accept(sequence, token);
    frame.add(id, token, finish, performance.now() - sequence.startedMs);
    if (sampling.topLogprobs !== null) frame.addLogprobs(this.#sampler.lastLogprobs);
    if (thinking !== null && finish === "none" && sequence.forcedAt >= sequence.forced.length) {
      const end = thinking.take(token);
      if (end !== null) this.#setForced(sequence, end);
    }
    return finish;
  }
}
