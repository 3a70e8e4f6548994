// Scheduler: picks the tokens of the next forward pass. There is no separate prefill or decode phase: one step may
// contain prompt chunks and decode tokens, up to a token budget. The scheduler does no I/O and reads no clock: the step
// loop passes the time to advance(). For each step, the step loop calls schedule(), runs the engine and the sampler,
// and then calls accept() and endStep().
import type { Batch } from "../../batch.ts";
import { type CachedPrefix, type KvModel, PrefixCache } from "../kv/prefix-cache.ts";
import { AdapterRotation } from "./adapter-rotation.ts";
import { KvAllocator } from "./kv-allocator.ts";
import type { Preemptions, SchedulerLimits, SchedulerStatistics } from "./limits.ts";
import { PrefillBudget } from "./prefill-budget.ts";
import { PrefillOrder } from "./prefill-order.ts";
import { queueFull } from "./queue/queue-full.ts";
import { SlotShares } from "./queue/slot-shares.ts";
import { WaitingQueue } from "./queue/waiting-queue.ts";
import { checkSequence, Sequence, type SequenceRequest } from "./sequence.ts";
import { SlotTable } from "./slot-table.ts";
import { StepTimeModel } from "./step-time-model.ts";

export type Finish = "none" | "stop" | "length";

/**
 * Time in ms after which a sequence loses its slot if its client does not read and another sequence waits for a slot. A
 * shorter pause may be network jitter. Chosen by hand.
 */
export const pauseGraceMs = 100;
/**
 * Time in ms after which a sequence loses its slot if its client does not read, even if no sequence waits. Reason: an
 * idle slot may cost the engine a row in each step. Chosen by hand.
 */
export const longestPauseMs = 2000;
/**
 * Maximum number of grammar-forced tokens that are fed in one decode row. A longer run is fed like a prompt. Chosen by
 * hand.
 */
const maxForcedRow = 32;

/** Scheduling state of the sequences of one adapter. If steps can mix adapters, all sequences share one state. */
interface Progress<S extends Sequence> {
  readonly order: PrefillOrder<S>;
  /**
   * Index of the sequence that decodes first in the next step, modulo the number of decoding sequences. It advances
   * only if the token budget is too small for all decoding sequences.
   */
  decodeStart: number;
  /**
   * Cost of the prompt steps since the last decode step: their prompt tokens, plus `passTokens` (see StepTimeModel) for
   * each step. Used only if the engine cannot mix prompts and decodes in one step.
   */
  tokensSinceDecodes: number;
}

export class Scheduler<S extends Sequence> {
  readonly cost: StepTimeModel;
  readonly prefixes: PrefixCache<S>;
  /** Sequence of each row of the most recently scheduled batch. */
  readonly rows: S[] = [];
  /** Number of prompt tokens in the most recently scheduled batch. */
  promptTokensInStep = 0;
  readonly #model: KvModel;
  readonly #limits: SchedulerLimits;
  readonly #endTokens: ReadonlySet<number>;
  readonly #queue = new WaitingQueue<S>();
  readonly #slots: SlotTable<S>;
  readonly #shares: SlotShares<S>;
  readonly #kv: KvAllocator<S>;
  /** Picks the adapter of each step; null if a step can mix adapters. */
  readonly #rotation: AdapterRotation | null;
  readonly #budget: PrefillBudget<S>;
  readonly #progress = new Map<number, Progress<S>>();
  readonly #preemptions: Preemptions = { reader: 0, memory: 0, share: 0 };
  /** Retired adapters: no new sequence uses them. */
  readonly #leaving = new Set<number>();
  /**
   * Runnable sequences at the start of the step. #decodes: the sequences that decode (see isDecode). #prompts: all
   * others.
   */
  readonly #decodes: S[] = [];
  readonly #prompts: S[] = [];
  #decodeTokens = 0;
  #logitsRowsLeft = 0;
  #step = 0;
  #nowMs = 0;
  #lastOrder = 0;

  /** `onEvict` is called with each cached prefix that is about to be evicted. */
  constructor(
    model: KvModel & { readonly tokens: { readonly endOfGeneration: readonly number[] } },
    limits: SchedulerLimits,
    onEvict: ((prefix: CachedPrefix) => void) | null = null,
  ) {
    const { capacity, capabilities, tokens } = model;
    this.#model = model;
    this.#limits = limits;
    this.#endTokens = new Set(tokens.endOfGeneration);
    this.cost = new StepTimeModel(capacity.maxLogitsRows, limits);
    this.prefixes = new PrefixCache(model, { limit: limits.prefixCacheEntries, onEvict });
    this.#slots = new SlotTable(capacity.maxSequences);
    this.#kv = new KvAllocator(model, this.prefixes, limits.swapBytes);
    this.#shares = new SlotShares(limits.slotShareMs, (sequence) =>
      this.#kv.canKeep(sequence) ? 0 : this.cost.promptMs(sequence.computed),
    );
    this.#rotation = capabilities.adaptersPerStep === 1 ? new AdapterRotation() : null;
    this.#budget = new PrefillBudget(this.cost, limits, capabilities.chunkTokens, this.#rotation);
  }

  get statistics(): SchedulerStatistics {
    return {
      waiting: this.#queue.size,
      running: this.#slots.running.length,
      preempted: this.#queue.preempted.size,
      preemptions: this.#preemptions,
      adapterSwitches: this.#rotation?.switches ?? 0,
      prefixes: this.prefixes.statistics,
    };
  }

  /**
   * Sets the current time, in ms of a monotonic clock. Call advance() before each step, and before add() and
   * setPaused(). Ends and returns the sequences that have waited too long for their first slot.
   */
  advance(nowMs: number): readonly S[] {
    this.#nowMs = nowMs;
    while (this.#preemptPaused(longestPauseMs));
    const expired: S[] = [];
    for (;;) {
      const oldest = this.#oldestLimited;
      if (oldest === undefined || nowMs - oldest.queuedMs < this.#limits.queueTimeoutMs) return expired;
      this.#finish(oldest);
      expired.push(oldest);
    }
  }

  /**
   * Earliest time at which advance() or schedule() will end, preempt or admit a sequence because of the elapsed time,
   * in ms of the clock of advance(); Infinity = never.
   */
  get nextChangeMs(): number {
    const { size } = this.#queue;
    const oldest = this.#oldestLimited;
    const paused = this.#slots.longestPaused();
    return Math.min(
      oldest === undefined ? Infinity : oldest.queuedMs + this.#limits.queueTimeoutMs,
      paused === null ? Infinity : paused.pausedMs + (size === 0 ? longestPauseMs : pauseGraceMs),
      size === 0 ? Infinity : this.#shares.nextChangeMs(this.#queue.next()),
    );
  }

  /**
   * Queues the sequences of one request, or none of them if one is rejected. If the sequences of a request are added by
   * several calls, each call must pass the same `request` object. If the queue is full, the new sequences may displace
   * sequences of other clients (see QueueShares): whole requests that have not begun, and preempted sequences. Ends the
   * displaced sequences and returns them. Throws `context_length_exceeded`, `unsupported`, `invalid_value` or
   * `queue_full`.
   */
  add(sequences: S | readonly S[], request: SequenceRequest = { hasBegun: false }): readonly S[] {
    const added = sequences instanceof Sequence ? [sequences] : sequences;
    for (const one of added) checkSequence(one, this.#model, this.#limits.maxBatchTokens);
    const free = this.#slotlessLimit - this.#slotlessCount;
    const displaced = this.#queue.displacedBy(added[0]?.client ?? "", added.length, free);
    if (displaced === null) throw queueFull(this.#limits.maxQueue);
    for (const one of displaced) this.#finish(one);
    for (const one of added) {
      one.request = request;
      one.queuedMs = this.#nowMs;
      this.#queue.add(one);
      this.#shares.add(one);
    }
    return displaced;
  }

  /** Whether the queue has room for a sequence. */
  get hasQueueRoom(): boolean {
    return this.#slotlessCount < this.#slotlessLimit;
  }

  /**
   * Removes a sequence in any state. Caches its KV if its whole prompt has been computed. `hasFailed`: the sequence has
   * failed; its KV is not cached, because the engine may have failed as well.
   */
  cancel(sequence: S, hasFailed = false): void {
    const { state, computed, promptLength } = sequence;
    if (!hasFailed && state === "running" && computed >= promptLength) this.#cache(sequence);
    this.#finish(sequence);
  }

  /**
   * Blocks a sequence whose client reads too slowly, or unblocks it. A blocked sequence keeps its slot for a while and
   * is then preempted. After a preemption, an unblocked sequence is the first of its client to get a slot. Its prompt
   * and output tokens are computed again if their KV was not kept.
   */
  setPaused(sequence: S, isPaused: boolean): void {
    if (sequence.isPaused === isPaused) return;
    setBlock(sequence, "reader", isPaused);
    sequence.pausedMs = this.#nowMs;
    if (sequence.state === "waiting" && isPaused) this.#requeue(sequence, false);
    else if (sequence.state === "preempted") {
      this.#queue.remove(sequence);
      sequence.queuedMs = this.#nowMs;
      this.#requeue(sequence, false);
    }
  }

  /** Blocks a sequence while the next mask of its grammar is not ready. */
  setAwaitsGrammar(sequence: S, awaits: boolean): void {
    setBlock(sequence, "grammar", awaits);
  }

  /**
   * Returns the sequences that decode in the next step, so that tokens can be drafted for them. Empty if a prompt can
   * run: prompts then take the rest of the token budget, and drafts get none of it. Valid until schedule().
   */
  nextDecodes(): readonly S[] {
    this.#rotation?.choose(this.#slots.running);
    this.#collect();
    return this.#prompts.length > 0 ? [] : this.#decodes;
  }

  /** Fills the batch with the rows of the next step. Returns false if there is nothing to run. */
  schedule(batch: Batch): boolean {
    this.#admit();
    this.#step++;
    this.#rotation?.choose(this.#slots.running);
    // All sequences of one adapter may lack KV memory until sequences of another adapter have run, so other adapters
    // are tried.
    for (let tries = this.#rotation?.count ?? 1; !this.#fill(batch); tries--) {
      if (tries <= 1 || !this.#rotation?.pass(this.#slots.running)) return false;
    }
    return true;
  }

  /**
   * Appends a sampled token to a sequence, and ends the sequence if the token is a stop token or if the maximum length
   * is reached. A stop token is not appended. Returns why the sequence ended, or "none".
   */
  accept(sequence: S, token: number): Finish {
    const isStop = (!sequence.ignoreEos && this.#endTokens.has(token)) || sequence.stopsAt(token);
    if (!isStop) {
      sequence.tokens[sequence.total++] = token;
      if (sequence.total < sequence.tokens.length) return "none";
    }
    this.#cache(sequence);
    this.#finish(sequence);
    return isStop ? "stop" : "length";
  }

  /**
   * Marks the most recently accepted token as computed. The token was drafted, so the step has already written its KV.
   */
  acceptDraft(sequence: S): void {
    sequence.computed++;
  }

  /**
   * Marks the last token of a sequence as not computed, so that the next step computes its logits again. Requires the
   * capability `truncate`.
   */
  feedAgain(sequence: S): void {
    sequence.computed--;
  }

  endStep(stepMs: number): void {
    const { promptTokensInStep: promptTokens } = this;
    const ownMs = this.#rotation?.endStep(this.#decodeTokens, promptTokens, stepMs, this.cost) ?? stepMs;
    if (ownMs > 0) this.cost.observe(this.#decodeTokens, promptTokens, ownMs);
    this.#budget.endStep(stepMs, promptTokens === 0 && this.#prompts.length > 0);
  }

  /** Retires an adapter: no new sequence will use it, and the KV of its sequences is not cached when they end. */
  retireAdapter(adapter: number): void {
    this.#leaving.add(adapter);
  }

  /** Forgets an adapter that no sequence uses, and drops its cached prefixes without calling onEvict. */
  dropAdapter(adapter: number): void {
    this.#leaving.delete(adapter);
    this.prefixes.dropAdapter(adapter);
    this.#rotation?.forget(adapter);
    this.#progress.delete(adapter);
  }

  /**
   * Checks that every sequence is only in the collection for its state, and that the counts of slots, tokens and bytes
   * are consistent. Throws if not.
   */
  checkIntegrity(): void {
    this.#slots.checkIntegrity();
    this.#queue.checkIntegrity();
    const slotless = [...this.#queue, ...this.#queue.preempted];
    this.#shares.checkIntegrity(this.#slots.running, slotless);
    this.#kv.checkIntegrity([...this.#slots.running, ...slotless]);
    if (this.#slotlessCount > this.#slotlessLimit) throw new Error(`${this.#slotlessCount} sequences have no slot`);
  }

  // Admission: gives waiting sequences free slots first, then the slots of paused sequences, then a
  // slot of a client with more slots.

  #admit(): void {
    for (const one of [...this.#slots.running]) {
      if (one.sharedPrefixOwner === null || this.#kv.awaitsPrefix(one) || this.#kv.place(one)) continue;
      this.#takeSlot(one);
      this.#requeue(one, true);
    }
    while (this.#queue.size > 0 && (this.#slots.freeCount > 0 || this.#preemptPaused(pauseGraceMs))) {
      const sequence = this.#takeNext();
      if (this.#start(sequence)) continue;
      this.#requeue(sequence, true);
      if (!this.#preemptPaused(pauseGraceMs)) break;
    }
    if (this.#queue.size > 0 && this.#shares.isDue(this.#nowMs)) this.#admitByShare();
  }

  /**
   * Takes the next waiting sequence by priority. If a client is owed a slot (see SlotShares), takes its next sequence
   * instead.
   */
  #takeNext(): S {
    const overdue = this.#queue.hasPriorities ? this.#shares.overdue(this.#queue.next(), this.#nowMs) : null;
    if (overdue === null) return this.#queue.take() as S;
    this.#queue.takeAhead(overdue);
    return overdue;
  }

  /** Gives a sequence a free slot and KV memory. If memory is short, returns false; the sequence then has neither. */
  #start(sequence: S): boolean {
    this.#slots.give(sequence);
    if (!this.#kv.place(sequence)) {
      this.#slots.take(sequence);
      return false;
    }
    if (sequence.order === 0) sequence.order = ++this.#lastOrder;
    sequence.request.hasBegun = true;
    sequence.wasPreempted = false;
    this.prefixes.addRunning(sequence);
    this.#shares.onSlotGiven(sequence, this.#nowMs);
    return true;
  }

  /**
   * Moves a slot from another client to a client that is owed a slot. Preempts several sequences if their KV memory is
   * needed.
   */
  #admitByShare(): void {
    const claimant = this.#shares.claimant(this.#queue.next(), this.#nowMs);
    if (claimant === null) return;
    const victims = this.#shares.victims(this.#slots.running, claimant, this.#nowMs);
    if (victims.length === 0 || !this.#kv.canFit(claimant, victims)) return;
    this.#queue.takeAhead(claimant);
    while (this.#slots.freeCount === 0 || !this.#start(claimant)) {
      const victim = this.#shares.victim(this.#slots.running, claimant, this.#nowMs);
      if (victim !== null) this.#preempt(victim, "share");
      else {
        this.#requeue(claimant, true);
        this.#shares.postpone(claimant, this.#nowMs);
        return;
      }
    }
  }

  // Filling the batch: the rows of one step, prompts first or decodes first.

  #fill(batch: Batch): boolean {
    batch.clear();
    this.rows.length = 0;
    this.promptTokensInStep = 0;
    this.#decodeTokens = 0;
    this.#logitsRowsLeft = this.#model.capacity.maxLogitsRows - this.#slots.running.length;
    this.#collect();
    const progress = this.#currentProgress;
    const { maxBatchTokens } = this.#limits;
    const { isDue } = this.#budget;
    this.#budget.begin(this.#decodes, this.#prompts);
    const isHolding = this.#budget.holdsDecodes(this.#decodes.length, this.#prompts);
    if (isHolding) this.#decodes.length = 0;
    if (!this.#mixesLengths) this.#fillOneKind(batch, progress, isDue);
    else {
      if (isDue) this.#prefill(batch, progress, this.#allowance(true));
      this.#decode(batch, progress, maxBatchTokens - batch.tokenCount);
      if (!isDue) this.#prefill(batch, progress, Math.min(this.#allowance(false), maxBatchTokens - batch.tokenCount));
    }
    // The first step after decodes were held back must feed decodes.
    if (isHolding) progress.tokensSinceDecodes = Infinity;
    return batch.rowCount > 0;
  }

  /**
   * Fills a step with either prompts or decodes, because the engine cannot mix them. Prompts get several consecutive
   * steps. The total time of these steps is limited to the time of the prompts in one mixed step. Then decodes get one
   * step.
   */
  #fillOneKind(batch: Batch, progress: Progress<S>, isDue: boolean): void {
    if (this.#decodes.length === 0) progress.tokensSinceDecodes = 0;
    this.#prefill(batch, progress, this.#allowance(isDue) - progress.tokensSinceDecodes);
    progress.tokensSinceDecodes += this.promptTokensInStep + this.cost.passTokens;
    if (batch.rowCount > 0) return;
    progress.tokensSinceDecodes = 0;
    this.#decode(batch, progress, this.#limits.maxBatchTokens);
  }

  /**
   * Sorts the runnable sequences into #decodes and #prompts. Call it before rows are added: adding a row changes
   * `computed`, and a sequence must not be in the same step both as a prompt and as a decode.
   */
  #collect(): void {
    this.#decodes.length = 0;
    this.#prompts.length = 0;
    for (const one of this.#slots.running) {
      if (!one.isRunnable || (this.#rotation !== null && one.adapter !== this.#rotation.adapter)) continue;
      (isDecode(one) ? this.#decodes : this.#prompts).push(one);
    }
  }

  get #currentProgress(): Progress<S> {
    const adapter = this.#rotation?.adapter ?? 0;
    const known = this.#progress.get(adapter);
    const progress = known ?? { order: new PrefillOrder<S>(), decodeStart: 0, tokensSinceDecodes: 0 };
    if (known === undefined) this.#progress.set(adapter, progress);
    return progress;
  }

  /**
   * Whether a step may mix prompts and decodes. Always true while adapters take turns, because the turn of an adapter
   * may be too short for separate steps.
   */
  get #mixesLengths(): boolean {
    return this.#model.capabilities.mixesLengths || this.#rotation?.isShared === true;
  }

  #allowance(isDue: boolean): number {
    const allowance = this.#budget.allowance(this.#decodes.length, this.#prompts, isDue);
    return Math.min(allowance, this.#limits.maxBatchTokens);
  }

  // Prefill: adds chunks of prompts, and of sequences whose KV was lost and is computed again.

  #prefill(batch: Batch, { order }: Progress<S>, allowance: number): void {
    if (allowance <= 0 || this.#prompts.length === 0) return;
    // The cost of earlier steps, which is subtracted from the allowance, is not a whole number of tokens.
    let left = Math.floor(allowance);
    let firstLength = 0;
    for (const sequence of order.arrange(this.#prompts)) {
      if (left <= 0) return;
      const to = this.#chunkEnd(sequence, left, batch);
      const tokens = to - sequence.computed;
      if (tokens <= 0 && !this.#model.capabilities.wholeSequences) return;
      const fits = tokens > 0 && (firstLength === 0 || tokens === firstLength || this.#mixesLengths);
      if (!fits || !this.#addRow(batch, sequence, to)) continue;
      left -= tokens;
      firstLength ||= tokens;
      this.promptTokensInStep += tokens;
      order.fed(sequence);
    }
  }

  #chunkEnd(sequence: S, left: number, batch: Batch): number {
    const { computed, total, promptLength, wantsPromptLogits } = sequence;
    const { maxBatchTokens, maxPrefillChunkTokens } = this.#limits;
    if (this.#model.capabilities.wholeSequences) {
      return total <= (batch.rowCount === 0 ? maxBatchTokens : left) ? total : computed;
    }
    const length = Math.min(left, maxPrefillChunkTokens);
    // With prompt logits, each token takes one row of logits. The row of the last token of the chunk is already
    // reserved.
    if (wantsPromptLogits && computed < promptLength) {
      return Math.min(computed + Math.min(length, 1 + this.#logitsRowsLeft), total);
    }
    const end = computed + length;
    const grained = end >= total ? total : end - (end % this.#budget.grain);
    if (sequence.spans.length === 0) return grained;
    const whole = sequence.chunkEnd(grained);
    // A span (the embeddings of an image) that must be computed in one step may exceed the allowance for prompts, but
    // not the token limit of the step.
    return batch.tokenCount + whole - computed <= maxBatchTokens ? whole : computed;
  }

  // Decode: adds the pending tokens of each sequence (usually one) and its draft. If the budget is too small for all
  // sequences, the sequences take turns.

  #decode(batch: Batch, progress: Progress<S>, budget: number): void {
    const count = this.#decodes.length;
    let left = budget;
    let added = 0;
    for (; added < count; added++) {
      const sequence = this.#decodes[(progress.decodeStart + added) % count] as S;
      if (sequence.state !== "running") continue;
      const { pending } = sequence;
      // If several forced tokens exceed the budget of a step, they are fed in parts.
      if (left === 0 || (pending > left && this.#decodeTokens > 0)) break;
      const length = Math.min(pending, left);
      // Tokens of other sequences take precedence over the draft of this sequence.
      const spare = Math.max(left - pending - (count - added - 1), 0);
      sequence.draftCount = Math.min(sequence.draftCount, spare, this.#logitsRowsLeft);
      if (!this.#addRow(batch, sequence, sequence.computed + length)) continue;
      left -= length + sequence.draftCount;
      this.#decodeTokens += length + sequence.draftCount;
    }
    if (added < count) progress.decodeStart = (progress.decodeStart + added) % count;
  }

  /**
   * Adds a row to the batch with the tokens of a sequence from `computed` to `to` (exclusive), and with its draft.
   * Returns false if KV memory is short; this step then does not feed the sequence.
   */
  #addRow(batch: Batch, sequence: S, to: number): boolean {
    // An earlier row of this step may have preempted this sequence.
    if (sequence.state !== "running") return false;
    const { slot, tokens, computed, draft, adapter } = sequence;
    // Room for a draft is not made by evicting cached prefixes, because the draft may turn out wrong.
    const hasDraft = sequence.draftCount > 0 && this.#model.kv.reserve(slot, to + sequence.draftCount);
    if (!hasDraft) sequence.draftCount = 0;
    if (!hasDraft && !this.#reserve(sequence, to)) return false;
    const logitsCount = logitsWanted(sequence, to);
    const row = batch.addRow(slot, tokens, computed, to, logitsCount, adapter);
    if (sequence.isPooled) batch.wantPooled[row] = 1;
    if (sequence.spans.length > 0) batch.embed(sequence.spans);
    if (draft !== null && sequence.draftCount > 0) batch.extendRow(draft, sequence.draftCount);
    this.#logitsRowsLeft -= Math.max(logitsCount - 1, 0) + sequence.draftCount;
    sequence.computed = to;
    sequence.step = this.#step;
    this.rows.push(sequence);
    return true;
  }

  // Preemption: a sequence loses its slot because other sequences need KV memory, because its client reads too slowly,
  // or because another client that waits has fewer slots.

  /**
   * Reserves room for `tokens` tokens. If memory is short, evicts cached prefixes, then preempts less important
   * sequences that are not in this step.
   */
  #reserve(sequence: S, tokens: number): boolean {
    while (!this.#kv.reserve(sequence, tokens, sequence.computed)) {
      const victim = this.#slots.leastImportant(sequence, this.#step);
      if (victim === null) return false;
      this.#preempt(victim, "memory");
    }
    return true;
  }

  /**
   * Preempts the sequence that has been paused longest. Returns false if no sequence has been paused for `pausedMs`.
   */
  #preemptPaused(pausedMs: number): boolean {
    const sequence = this.#slots.longestPaused();
    if (sequence === null || this.#nowMs - sequence.pausedMs < pausedMs) return false;
    this.#preempt(sequence, "reader");
    return true;
  }

  #preempt(sequence: S, cause: keyof Preemptions): void {
    if (cause === "share") this.#shares.onPreempt(sequence, this.#nowMs);
    if (cause !== "reader") this.#kv.swapOut(sequence);
    if (cause !== "memory" && sequence.swapped === null) this.prefixes.keep(sequence);
    this.#takeSlot(sequence);
    sequence.queuedMs = this.#nowMs;
    this.#requeue(sequence, cause === "memory");
    this.#preemptions[cause]++;
  }

  /**
   * Puts a sequence back into the queue, ahead of the other sequences of its client. `atFront`: ahead of all sequences
   * of its priority, because it lacked KV memory. A paused sequence is kept outside the queue.
   */
  #requeue(sequence: S, atFront: boolean): void {
    sequence.state = sequence.isPaused ? "preempted" : "waiting";
    if (sequence.isPaused) this.#queue.addPreempted(sequence);
    else if (atFront) this.#queue.addFront(sequence);
    else this.#queue.putBack(sequence);
  }

  #takeSlot(sequence: S): void {
    this.#shares.onSlotTaken(sequence);
    this.prefixes.removeRunning(sequence);
    this.#kv.release(sequence);
    this.#slots.take(sequence);
  }

  /** Ends a sequence in any state, and frees its slot and its KV memory at once. */
  #finish(sequence: S): void {
    const { state } = sequence;
    if (state === "finished") return;
    if (state === "running") this.#takeSlot(sequence);
    if (state === "running" || this.#queue.remove(sequence)) this.#shares.remove(sequence);
    this.#kv.forget(sequence);
    sequence.state = "finished";
  }

  #cache(sequence: S): void {
    if (!this.#leaving.has(sequence.adapter)) this.prefixes.keep(sequence);
  }

  /** The sequence that has waited longest for its first slot, among those with a queue timeout. */
  get #oldestLimited(): S | undefined {
    return this.#limits.queueTimeoutMs === 0 ? undefined : this.#queue.oldest;
  }

  get #slotlessCount(): number {
    return this.#queue.size + this.#queue.preempted.size;
  }

  /**
   * Maximum number of sequences without a slot. Free slots are added to `maxQueue`, because a sequence that will get a
   * free slot waits only for the next step.
   */
  get #slotlessLimit(): number {
    return this.#limits.maxQueue + this.#slots.freeCount;
  }
}

function setBlock({ blockedBy }: Sequence, block: "reader" | "grammar", isBlocked: boolean): void {
  if (isBlocked) blockedBy.add(block);
  else blockedBy.delete(block);
}

/** Number of rows of logits that a batch row needs if it feeds a sequence up to `to`. */
function logitsWanted({ isPooled, wantsPromptLogits, computed, promptLength, total }: Sequence, to: number): number {
  if (isPooled) return 0;
  return wantsPromptLogits && computed < promptLength ? to - computed : Number(to === total);
}

/**
 * Whether a sequence is fed as a decode: only one token is not computed yet, or a few forced tokens after the prompt.
 * The last prompt token of a pooled sequence counts as prefill, because no token is generated after it.
 */
function isDecode({ isPooled, total, computed, promptLength }: Sequence): boolean {
  const pending = total - computed;
  return !isPooled && (pending === 1 || (pending <= maxForcedRow && computed >= promptLength));
}
