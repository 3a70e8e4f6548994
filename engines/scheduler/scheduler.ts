// Owns which tokens of which sequences go into the next forward pass. There is no prefill phase and no decode phase: each
// step spends a token budget on letting every sequence's computed tokens catch up with its total. Pure policy: it never
// waits, reads no clock and does no I/O; the step loop tells it the time (advance) and calls schedule -> (engine, sampler)
// -> accept -> endStep.
import type { Batch } from "../batch.ts";
import { Admission, type QueueLimits } from "./admission.ts";
import { DecodeHold } from "./decode-hold.ts";
import type { PlacementModel } from "./placement.ts";
import { type CachedPrefix, PrefixCache, type PrefixStatistics } from "./prefix-cache.ts";
import { PromptOrder } from "./prompt-order.ts";
import type { Sequence } from "./sequence.ts";
import { checkSequence } from "./sequence-check.ts";
import { StepCost, type StepTarget } from "./step-cost.ts";

export interface SchedulerLimits extends StepTarget, QueueLimits {
  /** Tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
  /**
   * Sequences whose KV is kept when they have ended, for those that begin with the same tokens; 0 = none, and running
   * sequences share nothing either.
   */
  readonly prefixCacheEntries: number;
}

export type Finish = "none" | "stop" | "length";

/** Chunks of a prompt end on multiples of this from position 0, whatever the load, or at the prompt's end. */
const chunkGrain = 32;
/** More tokens than these behind a prompt are fed like a prompt. */
const maxForcedRow = 32;

export class Scheduler<S extends Sequence> {
  /** Sequence of each row of the batch last scheduled. */
  readonly rows: S[] = [];
  readonly cost: StepCost;
  readonly #model: PlacementModel;
  readonly #endTokens: ReadonlySet<number>;
  readonly #limits: SchedulerLimits;
  readonly #hold: DecodeHold;
  readonly #grain: number;
  readonly #prefixes: PrefixCache<S>;
  readonly #admission: Admission<S>;
  readonly #promptOrder = new PromptOrder<S>();
  /** Sequences with one token to feed, as the step began. */
  readonly #decodes: S[] = [];
  readonly #prompts: S[] = [];
  #step = 0;
  #decodeOnlySteps = 0;
  /** Where the round over decodes starts when the budget does not hold them all. */
  #decodeStart = 0;
  #decodeTokensInStep = 0;
  #promptTokensInStep = 0;
  /** Logits rows the step may still ask for. */
  #logitsRowsLeft = 0;

  /** `onEvict` is told of each cached prefix that is about to be dropped. */
  constructor(
    model: PlacementModel & { readonly tokens: { readonly endOfGeneration: readonly number[] } },
    limits: SchedulerLimits,
    onEvict: ((prefix: CachedPrefix) => void) | null = null,
  ) {
    this.#model = model;
    this.#endTokens = new Set(model.tokens.endOfGeneration);
    this.#limits = limits;
    this.cost = new StepCost(model.capacity.maxLogitsRows, limits);
    this.#hold = new DecodeHold(this.cost, limits.maxStepMs);
    this.#grain = Math.min(chunkGrain, limits.maxPrefillChunkTokens, limits.maxBatchTokens);
    const options = { limit: limits.prefixCacheEntries, onEvict };
    this.#prefixes = new PrefixCache(model.kv, model.capabilities, options);
    this.#admission = new Admission(model, this.#prefixes, limits);
  }

  get waitingCount(): number {
    return this.#admission.waitingCount;
  }

  get runningCount(): number {
    return this.#running.length;
  }

  get parkedCount(): number {
    return this.#admission.parked.size;
  }

  /** How often a paused sequence has lost its slot. */
  get pausedPreemptions(): number {
    return this.#admission.pausedPreemptions;
  }

  /** How often a sequence has lost its slot because others needed its KV memory. */
  get memoryPreemptions(): number {
    return this.#admission.memoryPreemptions;
  }

  get prefixStatistics(): Readonly<PrefixStatistics> {
    return this.#prefixes.statistics;
  }

  /** The sequences that would feed one token in the next step. */
  *decodes(): Generator<S> {
    for (const sequence of this.#running) if (isDecode(sequence)) yield sequence;
  }

  /** How many of the first tokens of a prompt a cached prefix has. */
  cachedLength(tokens: Int32Array, adapter: number): number {
    return this.#prefixes.findCopy({ tokens, adapter, total: tokens.length })?.length ?? 0;
  }

  /** Adds a prefix whose KV comes from elsewhere, as exported by a model like this one. False where there is no room. */
  importPrefix(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    return this.#prefixes.import(adapter, tokens, bytes);
  }

  /** Drops the cached prefix that was used longest ago. False where there is none. */
  evictPrefix(): boolean {
    return this.#prefixes.evict();
  }

  get promptTokensInStep(): number {
    return this.#promptTokensInStep;
  }

  /** When the passing of time alone changes something, by the clock of advance(); Infinity if it does not. */
  get nextChangeMs(): number {
    return this.#admission.nextChangeMs;
  }

  /**
   * Tells the time, in ms of a clock that never goes back: before each step, and before add() and setPaused(). Returns
   * the sequences that have waited too long for their first slot; they are finished.
   */
  advance(nowMs: number): readonly S[] {
    return this.#admission.advance(nowMs);
  }

  /** Queues a sequence. Throws `context_length_exceeded`, `unsupported`, `invalid_value` or `queue_full`. */
  add(sequence: S): void {
    checkSequence(sequence, this.#model, this.#limits.maxBatchTokens);
    this.#admission.add(sequence);
  }

  /** Removes a sequence in any state. The engine forgets it at once. */
  cancel(sequence: S): void {
    this.#admission.finish(sequence);
  }

  /**
   * A paused sequence is not scheduled. Without a slot, or when one that waits takes its slot, it is parked; when it goes
   * on, it is its client's next to get a slot, and all its tokens, prompt and output, are fed again.
   */
  setPaused(sequence: S, paused: boolean): void {
    this.#admission.setPaused(sequence, paused);
  }

  /** Fills the batch with the next step. Returns false when there is nothing to run. */
  schedule(batch: Batch): boolean {
    batch.clear();
    this.rows.length = 0;
    this.#step++;
    this.#promptTokensInStep = 0;
    this.#decodeTokensInStep = 0;
    this.#admission.admit();
    this.#collect();
    const forced = this.#decodeOnlySteps >= this.#limits.maxDecodeStepsBeforePrefill;
    const budget = this.#limits.maxBatchTokens;
    if (this.#holdsDecodes()) this.#decodes.length = 0;
    if (forced) this.#addPrompts(batch, Math.min(this.#allowance(true), budget));
    this.#addDecodes(batch, budget - batch.tokenCount);
    if (!forced) this.#addPrompts(batch, Math.min(this.#allowance(false), budget - batch.tokenCount));
    return batch.rowCount > 0;
  }

  /**
   * Takes the token sampled for a sequence whose logits the last step gave. Returns how that ends it; the token that
   * ended it is not part of the text.
   */
  accept(sequence: S, token: number): Finish {
    const isStop = !sequence.ignoreEos && this.#endTokens.has(token);
    if (!isStop) {
      sequence.tokens[sequence.total++] = token;
      if (sequence.total < sequence.tokens.length) return "none";
    }
    this.#prefixes.keep(sequence);
    this.#admission.finish(sequence);
    return isStop ? "stop" : "length";
  }

  /** The draft's next token is what was sampled: it is in the KV cache already. */
  acceptDraft(sequence: S): void {
    sequence.computed++;
  }

  /** Ends a sequence whose pooled output is complete. */
  finishPooled(sequence: S): void {
    this.#admission.finish(sequence);
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.cost.observe(this.#decodeTokensInStep, this.#promptTokensInStep, stepMs);
    this.#hold.endStep(stepMs);
    const promptWaits = this.#promptTokensInStep === 0 && this.#running.some((s) => s.isRunnable && !isDecode(s));
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
  }

  /** Throws if the books do not balance, of slots or of tokens. */
  checkIntegrity(): void {
    this.#admission.checkIntegrity();
    for (const { computed, total, tokens, slot, isPooled } of this.#running) {
      if (computed < 0 || computed >= total || total > tokens.length || (total === tokens.length && !isPooled)) {
        throw new Error(`running sequence in slot ${slot}: ${computed}/${total}/${tokens.length}`);
      }
    }
  }

  get #running(): readonly S[] {
    return this.#admission.running;
  }

  /** Before prompts are fed: one that this step leaves a token short of its end must not join it a second time. */
  #collect(): void {
    this.#decodes.length = 0;
    this.#prompts.length = 0;
    for (const sequence of this.#running) {
      if (sequence.isRunnable) (isDecode(sequence) ? this.#decodes : this.#prompts).push(sequence);
    }
    this.#logitsRowsLeft = this.#model.capacity.maxLogitsRows - this.#running.length;
  }

  #holdsDecodes(): boolean {
    let promptTokens = 0;
    for (const { pending } of this.#prompts) promptTokens += pending;
    const crowd = { decodes: this.#decodes.length, prompts: this.#prompts.length };
    return this.#hold.decide({ ...crowd, promptTokens, allowance: this.#allowance(false) });
  }

  /** One token of each decoding sequence, and its draft; a budget too small for all takes them in turn. */
  #addDecodes(batch: Batch, budget: number): void {
    const count = this.#decodes.length;
    let left = budget;
    let added = 0;
    for (; added < count; added++) {
      const sequence = this.#decodes[(this.#decodeStart + added) % count] as S;
      const { pending } = sequence;
      if (pending > left) break;
      // The others' tokens come before this one's draft.
      const spare = Math.max(left - pending - (count - added - 1), 0);
      sequence.draftCount = Math.min(sequence.draftCount, spare, this.#logitsRowsLeft);
      if (!this.#addRow(batch, sequence, sequence.total)) continue;
      left -= pending + sequence.draftCount;
      this.#decodeTokensInStep += pending + sequence.draftCount;
    }
    this.#decodeStart = added < count ? (this.#decodeStart + added) % count : 0;
  }

  /** Chunks of prompts, and of what has to be fed again. */
  #addPrompts(batch: Batch, allowance: number): void {
    if (allowance <= 0 || this.#prompts.length === 0) return;
    let left = allowance;
    for (const sequence of this.#promptOrder.arrange(this.#prompts)) {
      if (left <= 0) return;
      const to = this.#chunkEnd(sequence, left, batch);
      if (to <= sequence.computed) {
        if (this.#model.capabilities.wholeSequences) continue;
        return;
      }
      const tokens = to - sequence.computed;
      if (!this.#addRow(batch, sequence, to)) continue;
      left -= tokens;
      this.#promptTokensInStep += tokens;
      this.#promptOrder.fed(sequence);
    }
  }

  /** Prompt tokens for a step beside so many decodes; at least one grain where nothing else would run or it is due. */
  #allowance(due: boolean): number {
    const decodes = this.#decodes.length;
    const allowance = this.cost.promptAllowance(decodes) ?? 0;
    return due || decodes === 0 ? Math.max(allowance, this.#grain) : allowance;
  }

  #chunkEnd(sequence: S, left: number, batch: Batch): number {
    if (this.#model.capabilities.wholeSequences) {
      const isFirst = batch.rowCount === 0;
      const fits = sequence.total <= (isFirst ? this.#limits.maxBatchTokens : left);
      return fits ? sequence.total : sequence.computed;
    }
    const length = Math.min(left, this.#limits.maxPrefillChunkTokens);
    // Logits of every token take a row each; the chunk's last one has its own.
    if (sequence.wantsPromptLogits && sequence.computed < sequence.promptLength) {
      return Math.min(sequence.computed + Math.min(length, 1 + this.#logitsRowsLeft), sequence.total);
    }
    const end = sequence.computed + length;
    if (end >= sequence.total) return sequence.total;
    return end - (end % this.#grain);
  }

  /** False where there is too little KV memory: the sequence sits out. */
  #addRow(batch: Batch, sequence: S, to: number): boolean {
    // A row before this one may have needed its memory.
    if (sequence.state !== "running") return false;
    const { slot, tokens, computed, draft, adapter } = sequence;
    if (!this.#admission.reserve(sequence, to + sequence.draftCount, this.#step)) {
      if (sequence.draftCount === 0) return false;
      sequence.draftCount = 0;
      return this.#addRow(batch, sequence, to);
    }
    const logitsCount = this.#logitsWanted(sequence, to);
    const row = batch.addRow(slot, tokens, computed, to, logitsCount, adapter);
    if (sequence.isPooled) batch.wantPooled[row] = 1;
    if (draft !== null && sequence.draftCount > 0) batch.extendRow(draft, sequence.draftCount);
    this.#logitsRowsLeft -= Math.max(logitsCount - 1, 0) + sequence.draftCount;
    sequence.computed = to;
    sequence.step = this.#step;
    this.rows.push(sequence);
    return true;
  }

  #logitsWanted(sequence: S, to: number): number {
    if (sequence.isPooled) return 0;
    if (sequence.wantsPromptLogits && sequence.computed < sequence.promptLength) return to - sequence.computed;
    return to === sequence.total ? 1 : 0;
  }
}

/**
 * It has one token to feed, or a few that came at once behind its prompt. One whose hidden states are pooled has no next
 * token, however few it has left.
 */
function isDecode(sequence: Sequence): boolean {
  if (!sequence.isRunnable || sequence.isPooled) return false;
  return sequence.pending === 1 || (sequence.pending <= maxForcedRow && sequence.computed >= sequence.promptLength);
}
