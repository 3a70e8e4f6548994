// Owns which tokens of which sequences go into the next forward pass. There is no prefill phase and no decode phase: each
// step spends a token budget on letting every sequence's computed tokens catch up with its total. Pure policy: it never
// waits, reads no clock and does no I/O; the step loop tells it the time (advance) and calls schedule -> (engine, sampler)
// -> accept -> endStep.
import type { Batch } from "../../batch.ts";
import type { KvModel } from "../kv/prefix-cache.ts";
import { type CachedPrefix, PrefixCache, type PrefixStatistics } from "../kv/prefix-cache.ts";
import { BatchBuilder, isDecode, type StepLimits } from "./batch-builder.ts";
import type { Sequence, SequenceRequest } from "./sequence.ts";
import { checkSequence } from "./sequence-check.ts";
import { type QueueLimits, SlotManager } from "./slot-manager.ts";
import { StepTimeModel } from "./step-time-model.ts";

export interface SchedulerLimits extends StepLimits, QueueLimits {
  /**
   * Sequences whose KV is kept when they have ended, for those that begin with the same tokens; 0 = none, and running
   * sequences share nothing either.
   */
  readonly prefixCacheEntries: number;
}

export type Finish = "none" | "stop" | "length";

export class Scheduler<S extends Sequence> {
  readonly cost: StepTimeModel;
  readonly #model: KvModel;
  readonly #endTokens: ReadonlySet<number>;
  readonly #limits: SchedulerLimits;
  readonly #prefixes: PrefixCache<S>;
  readonly #admission: SlotManager<S>;
  readonly #filler: BatchBuilder<S>;
  /** Adapters that no further sequence names. */
  readonly #leaving = new Set<number>();

  /** `onEvict` is told of each cached prefix that is about to be dropped. */
  constructor(
    model: KvModel & { readonly tokens: { readonly endOfGeneration: readonly number[] } },
    limits: SchedulerLimits,
    onEvict: ((prefix: CachedPrefix) => void) | null = null,
  ) {
    this.#model = model;
    this.#endTokens = new Set(model.tokens.endOfGeneration);
    this.#limits = limits;
    this.cost = new StepTimeModel(model.capacity.maxLogitsRows, limits);
    const options = { limit: limits.prefixCacheEntries, onEvict };
    this.#prefixes = new PrefixCache(model, options);
    this.#admission = new SlotManager(model, this.#prefixes, limits, (tokens) => this.cost.promptMs(tokens));
    this.#filler = new BatchBuilder(model, this.#admission, this.cost, limits);
  }

  /** Sequence of each row of the batch last scheduled. */
  get rows(): readonly S[] {
    return this.#filler.rows;
  }

  /** Prompt tokens in the batch last scheduled. */
  get promptTokensInStep(): number {
    return this.#filler.promptTokens;
  }

  get waitingCount(): number {
    return this.#admission.waitingCount;
  }

  get runningCount(): number {
    return this.#running.length;
  }

  get preemptedCount(): number {
    return this.#admission.preemptedCount;
  }

  /** How often a paused sequence has lost its slot. */
  get pausedPreemptions(): number {
    return this.#admission.pausedPreemptions;
  }

  /** How often a sequence has lost its slot because others needed its KV memory. */
  get memoryPreemptions(): number {
    return this.#admission.memoryPreemptions;
  }

  /** How often a sequence has lost its slot to a client that had fewer. */
  get sharePreemptions(): number {
    return this.#admission.sharePreemptions;
  }

  get prefixStatistics(): Readonly<PrefixStatistics> {
    return this.#prefixes.statistics;
  }

  /** How often a step had another adapter than the one before, where a step can have one only. */
  get adapterSwitches(): number {
    return this.#filler.turn?.switches ?? 0;
  }

  /** Settles whose turn the next step is: before decodes() and hasPrompts, which are about that step. */
  chooseTurn(): void {
    this.#filler.turn?.choose(this.#running);
  }

  /** The sequences that would feed one token in the next step. */
  *decodes(): Generator<S> {
    for (const sequence of this.#running) if (isDecode(sequence) && this.#filler.isInTurn(sequence)) yield sequence;
  }

  /** Whether prompts want all that decodes leave of the next step. */
  get hasPrompts(): boolean {
    return this.#filler.hasPrompts;
  }

  /** How many of the first tokens of a prompt a cached prefix has. */
  cachedLength(tokens: Int32Array, adapter: number): number {
    return this.#prefixes.findCopy({ tokens, adapter, total: tokens.length })?.length ?? 0;
  }

  /** Adds a prefix whose KV comes from elsewhere, as exported by a model like this one. False where there is no room. */
  importPrefix(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    return this.#prefixes.import(adapter, tokens, bytes);
  }

  /** No further sequence names an adapter: what its sequences have computed is of no use when they end. */
  retireAdapter(adapter: number): void {
    this.#leaving.add(adapter);
  }

  /** Forgets an adapter that no sequence names any more, and the prefixes cached for it; onEvict is not told. */
  dropAdapter(adapter: number): void {
    this.#leaving.delete(adapter);
    this.#prefixes.dropAdapter(adapter);
    this.#filler.forgetAdapter(adapter);
  }

  /** Drops the cached prefix that was used last. False where there is none. */
  evictLatestPrefix(): boolean {
    return this.#prefixes.evictLatest();
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

  /** Queues a sequence as addAll() does; `request` is given where the sequences of one request are added one by one. */
  add(sequence: S, request?: SequenceRequest): readonly S[] {
    return this.addAll([sequence], request);
  }

  /**
   * Queues the sequences of a request, all or none. Returns those that were refused in their place, because their client
   * has more without a slot (see QueueShares): requests as a whole that had not begun, and what was parked; they are
   * finished. Throws
   * `context_length_exceeded`, `unsupported`, `invalid_value` or `queue_full`.
   */
  addAll(sequences: readonly S[], request: SequenceRequest = { hasBegun: false }): readonly S[] {
    for (const sequence of sequences) checkSequence(sequence, this.#model, this.#limits.maxBatchTokens);
    return this.#admission.add(sequences, request);
  }

  /** Removes a sequence in any state. What it has computed of its output is kept for those that go on from there. */
  cancel(sequence: S): void {
    if (sequence.state === "running" && sequence.computed >= sequence.promptLength) this.#keep(sequence);
    this.#admission.finish(sequence);
  }

  /** Removes a sequence that has failed, and the engine perhaps with it: nothing of it is kept. */
  discard(sequence: S): void {
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
    this.#admission.admit();
    return this.#filler.fill(batch);
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
    this.#keep(sequence);
    this.#admission.finish(sequence);
    return isStop ? "stop" : "length";
  }

  /** The draft's next token is what was sampled: it is in the KV cache already. */
  acceptDraft(sequence: S): void {
    sequence.computed++;
  }

  /** Gives up the logits behind a sequence's last token, which is fed again. Capability `truncate`. */
  feedAgain(sequence: S): void {
    sequence.computed--;
  }

  /** Ends a sequence whose pooled output is complete. */
  finishPooled(sequence: S): void {
    this.#admission.finish(sequence);
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.#filler.endStep(stepMs);
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

  /** Of one that ends. */
  #keep(sequence: S): void {
    if (!this.#leaving.has(sequence.adapter)) this.#prefixes.keep(sequence);
  }

  get #running(): readonly S[] {
    return this.#admission.running;
  }
}
