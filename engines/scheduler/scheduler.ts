// Owns which tokens of which sequences go into the next forward pass. There is no prefill phase and no decode phase: each
// step spends a token budget on letting every sequence's computed tokens catch up with its total. Pure policy: it never
// waits, reads no clock and does no I/O; the step loop tells it the time (advance) and calls schedule -> (engine, sampler)
// -> accept -> endStep.
import { ServerError } from "../../runtime/errors.ts";
import type { Batch } from "../batch.ts";
import type { Capabilities, Capacity, KvCache } from "../engine.ts";
import { Admission, type QueueLimits } from "./admission.ts";
import { DecodeHold } from "./decode-hold.ts";
import { PrefixCache } from "./prefix-cache.ts";
import { PromptOrder } from "./prompt-order.ts";
import type { Sequence } from "./sequence.ts";
import { StepCost, type StepTarget } from "./step-cost.ts";

export interface SchedulerLimits extends StepTarget, QueueLimits {
  /** Tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
  /** Sequences whose KV is kept when they have ended, for those that begin with the same tokens. */
  readonly prefixCacheEntries: number;
}

export type Finish = "none" | "stop" | "length";

/** Chunks of a prompt end on multiples of this from position 0, whatever the load, or at the prompt's end. */
const chunkGrain = 32;

export class Scheduler<S extends Sequence> {
  /** Sequence of each row of the batch last scheduled. */
  readonly rows: S[] = [];
  readonly #capacity: Capacity;
  readonly #capabilities: Capabilities;
  readonly #endTokens: ReadonlySet<number>;
  readonly #limits: SchedulerLimits;
  readonly #cost: StepCost;
  readonly #hold: DecodeHold;
  readonly #grain: number;
  readonly #prefixes: PrefixCache;
  readonly #admission: Admission<S>;
  readonly #promptOrder = new PromptOrder<S>();
  /** Sequences with one token to feed, as the step began. */
  readonly #decodes: S[] = [];
  readonly #prompts: S[] = [];
  #decodeOnlySteps = 0;
  /** Where the round over decodes starts when the budget does not hold them all. */
  #decodeStart = 0;
  #decodesInStep = 0;
  #promptTokensInStep = 0;

  constructor(
    model: {
      readonly capacity: Capacity;
      readonly capabilities: Capabilities;
      readonly kv: KvCache;
      readonly tokens: { readonly endOfGeneration: readonly number[] };
    },
    limits: SchedulerLimits,
  ) {
    this.#capacity = model.capacity;
    this.#capabilities = model.capabilities;
    this.#endTokens = new Set(model.tokens.endOfGeneration);
    this.#limits = limits;
    this.#cost = new StepCost(model.capacity.maxSequences, limits);
    this.#hold = new DecodeHold(this.#cost, limits.maxStepMs);
    this.#grain = Math.min(chunkGrain, limits.maxPrefillChunkTokens, limits.maxBatchTokens);
    const { saveState, truncate } = model.capabilities;
    this.#prefixes = new PrefixCache(model.kv, saveState && truncate ? limits.prefixCacheEntries : 0);
    this.#admission = new Admission(model.capacity.maxSequences, model.kv, this.#prefixes, limits);
  }

  get waitingCount(): number {
    return this.#admission.waiting.size;
  }

  get runningCount(): number {
    return this.#running.length;
  }

  get parkedCount(): number {
    return this.#admission.parked.size;
  }

  /** How often a paused sequence has lost its slot. */
  get preemptionCount(): number {
    return this.#admission.preemptionCount;
  }

  /** Prompt tokens that were in the KV cache of an earlier sequence. */
  get reusedTokens(): number {
    return this.#prefixes.reusedTokens;
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

  /** Queues a sequence. Throws `context_length_exceeded`, `unsupported` or `queue_full`. */
  add(sequence: S): void {
    if (sequence.promptLength === 0) {
      throw new ServerError("invalid_value", "the prompt is empty; expected at least one token", { param: "prompt" });
    }
    if (sequence.tokens.length > this.#capacity.sequenceTokens) {
      throw new ServerError(
        "context_length_exceeded",
        `prompt (${sequence.promptLength} tokens) and max_tokens (${sequence.tokens.length - sequence.promptLength}) ` +
          `exceed the ${this.#capacity.sequenceTokens} tokens a sequence of this model may hold`,
      );
    }
    if (sequence.adapter !== 0 && this.#capabilities.adaptersPerStep === 0) {
      throw new ServerError("unsupported", "this model was loaded without adapters", { param: "adapter" });
    }
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
    this.#promptTokensInStep = 0;
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

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.#cost.observe(this.#decodesInStep, this.#promptTokensInStep, stepMs);
    this.#hold.endStep(stepMs);
    const promptWaits = this.#promptTokensInStep === 0 && this.#running.some((s) => s.isRunnable && s.pending > 1);
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
  }

  /** Throws if the books do not balance, of slots or of tokens. */
  checkIntegrity(): void {
    this.#admission.checkIntegrity();
    for (const { computed, total, tokens, slot } of this.#running) {
      if (computed < 0 || computed >= total || total >= tokens.length) {
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
      if (sequence.isRunnable) (sequence.pending === 1 ? this.#decodes : this.#prompts).push(sequence);
    }
  }

  #holdsDecodes(): boolean {
    let promptTokens = 0;
    for (const { pending } of this.#prompts) promptTokens += pending;
    const crowd = { decodes: this.#decodes.length, prompts: this.#prompts.length };
    return this.#hold.decide({ ...crowd, promptTokens, allowance: this.#allowance(false) });
  }

  /** One token of each decoding sequence; a budget too small for all takes them in turn. */
  #addDecodes(batch: Batch, budget: number): void {
    const count = this.#decodes.length;
    const added = Math.min(count, budget);
    if (added === count) this.#decodeStart = 0;
    for (let i = 0; i < added; i++) {
      const sequence = this.#decodes[(this.#decodeStart + i) % count] as S;
      this.#addRow(batch, sequence, sequence.total);
    }
    if (added < count) this.#decodeStart = (this.#decodeStart + added) % count;
    this.#decodesInStep = added;
  }

  /** Chunks of prompts, and of what has to be fed again. */
  #addPrompts(batch: Batch, allowance: number): void {
    if (allowance <= 0 || this.#prompts.length === 0) return;
    let left = allowance;
    for (const sequence of this.#promptOrder.arrange(this.#prompts)) {
      if (left <= 0) return;
      const to = this.#chunkEnd(sequence, Math.min(left, this.#limits.maxPrefillChunkTokens));
      if (to <= sequence.computed) return;
      left -= to - sequence.computed;
      this.#promptTokensInStep += to - sequence.computed;
      this.#addRow(batch, sequence, to);
      this.#promptOrder.fed(sequence);
    }
  }

  /** Prompt tokens for a step beside so many decodes; at least one grain where nothing else would run or it is due. */
  #allowance(due: boolean): number {
    const decodes = this.#decodes.length;
    const allowance = this.#cost.promptAllowance(decodes) ?? 0;
    return due || decodes === 0 ? Math.max(allowance, this.#grain) : allowance;
  }

  #chunkEnd(sequence: S, length: number): number {
    const end = sequence.computed + length;
    if (end >= sequence.total) return sequence.total;
    return end - (end % this.#grain);
  }

  #addRow(batch: Batch, sequence: S, to: number): void {
    batch.addRow(sequence.slot, sequence.tokens, sequence.computed, to, to === sequence.total, sequence.adapter);
    sequence.computed = to;
    this.rows.push(sequence);
  }
}
