// Owns the filling of one step: which rows, how long, in what order, beside one another. Used by the scheduler only; it is
// told what steps took and learns from it.
import type { Batch } from "../../batch.ts";
import type { KvModel } from "../kv/prefix-cache.ts";
import { AdapterRotation } from "./adapter-rotation.ts";
import { PrefillOrder } from "./prefill-order.ts";
import { PrefillPriority } from "./prefill-priority.ts";
import type { Sequence } from "./sequence.ts";
import type { SlotManager } from "./slot-manager.ts";
import type { StepTarget, StepTimeModel } from "./step-time-model.ts";

export interface StepLimits extends StepTarget {
  /** Tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
}

/** More tokens than these behind a prompt are fed like a prompt. */
const maxForcedRow = 32;
/** A prompt that has the step to itself may take so many times what is allowed, where that ends it. */
const loneRestFactor = 2;

/** How far an adapter's sequences have come: one's turn changes nothing for another. */
interface Progress<S extends Sequence> {
  readonly order: PrefillOrder<S>;
  /** Where the round over its decodes starts, modulo their number, when the budget does not hold them all. */
  decodeStart: number;
  /** Its last step fed a prompt. */
  fedPrompt: boolean;
  /** Prompt tokens that the steps since the last one of decodes have cost, where a step cannot have both. */
  tokensSinceDecodes: number;
}

export class BatchBuilder<S extends Sequence> {
  /** Sequence of each row of the batch last filled. */
  readonly rows: S[] = [];
  /** Prompt tokens in it. */
  promptTokens = 0;
  /** null where a step can have rows of any adapters. */
  readonly turn: AdapterRotation | null;
  readonly #model: KvModel;
  readonly #admission: SlotManager<S>;
  readonly #cost: StepTimeModel;
  readonly #limits: StepLimits;
  readonly #hold: PrefillPriority;
  /** Chunks of a prompt end on multiples of this from position 0, whatever the load, or at the prompt's end. */
  readonly #grain: number;
  /** By adapter where they take turns; else there is one. */
  readonly #progress = new Map<number, Progress<S>>();
  /** Sequences with one token to feed, or a few behind their prompt, as the step began; and the others. */
  readonly #decodes: S[] = [];
  readonly #prompts: S[] = [];
  #step = 0;
  /** Steps, and their time, since the prompts that wait were last fed. */
  #decodeOnlySteps = 0;
  #decodeOnlyMs = 0;
  #decodeTokens = 0;
  /** The one sequence that can run, if there is one, and for how long that has been so. */
  #lone: S | null = null;
  #aloneMs = 0;
  /** Logits rows the step may still ask for. */
  #logitsRowsLeft = 0;

  constructor(model: KvModel, admission: SlotManager<S>, cost: StepTimeModel, limits: StepLimits) {
    this.turn = model.capabilities.adaptersPerStep === 1 ? new AdapterRotation(cost) : null;
    this.#model = model;
    this.#admission = admission;
    this.#cost = cost;
    this.#limits = limits;
    this.#hold = new PrefillPriority(cost, limits.maxStepMs);
    // Where prompts may have to leave half of a step to decodes, a grain fits into the rest.
    const leastRoom = this.turn === null ? limits.maxBatchTokens : Math.max(limits.maxBatchTokens >> 1, 1);
    this.#grain = Math.min(model.capabilities.chunkTokens.least, limits.maxPrefillChunkTokens, leastRoom);
  }

  /** Fills the batch with rows of the running sequences. Returns false when there is nothing to run. */
  fill(batch: Batch): boolean {
    this.#step++;
    const { turn } = this;
    if (turn === null) return this.#fillTurn(batch);
    const since = turn.count;
    turn.choose(this.#running);
    // There may be no KV memory for any of an adapter's sequences until those of another go on.
    while (!this.#fillTurn(batch)) if (!turn.pass(this.#running, since)) return false;
    return true;
  }

  /** Whether a running sequence may have a row in the next step. */
  isInTurn(sequence: S): boolean {
    return this.turn === null || sequence.adapter === this.turn.adapter;
  }

  /** Whether prompts want all that decodes leave of the next step. */
  get hasPrompts(): boolean {
    return this.#running.some((one) => one.isRunnable && this.isInTurn(one) && !isDecode(one));
  }

  /** An adapter is gone. */
  forgetAdapter(adapter: number): void {
    this.turn?.forget(adapter);
    this.#progress.delete(adapter);
  }

  #fillTurn(batch: Batch): boolean {
    batch.clear();
    this.rows.length = 0;
    this.promptTokens = 0;
    this.#decodeTokens = 0;
    this.#collect();
    const own = this.#own;
    const forced = this.#isPromptDue(own);
    const isHolding = this.#holdsDecodes();
    if (isHolding) this.#decodes.length = 0;
    if (this.#mixesLengths) this.#fillBothKinds(batch, own, forced);
    else this.#fillOneKind(batch, own, forced);
    // The first step after a hold feeds decodes.
    if (isHolding) own.tokensSinceDecodes = Infinity;
    if (batch.rowCount === 0) return false;
    own.fedPrompt = this.promptTokens > 0;
    return true;
  }

  #fillBothKinds(batch: Batch, own: Progress<S>, forced: boolean): void {
    const budget = this.#limits.maxBatchTokens;
    if (forced) this.#addPrompts(batch, own, Math.min(this.#allowance(true), budget - this.#keptForDecodes));
    this.#addDecodes(batch, own, budget - batch.tokenCount);
    if (!forced) this.#addPrompts(batch, own, Math.min(this.#allowance(false), budget - batch.tokenCount));
  }

  /** Prompts get steps in a row until those have cost what prompts may cost in a step of both kinds; then decodes get one. */
  #fillOneKind(batch: Batch, own: Progress<S>, forced: boolean): void {
    const budget = this.#limits.maxBatchTokens;
    if (this.#decodes.length === 0) own.tokensSinceDecodes = 0;
    this.#addPrompts(batch, own, Math.min(this.#allowance(forced), budget) - own.tokensSinceDecodes);
    own.tokensSinceDecodes += this.promptTokens + this.#cost.passTokens;
    if (batch.rowCount > 0) return;
    own.tokensSinceDecodes = 0;
    this.#addDecodes(batch, own, budget);
  }

  /** Not asked of turns of several adapters: a turn may be a single step. */
  get #mixesLengths(): boolean {
    return this.#model.capabilities.mixesLengths || this.turn?.isShared === true;
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    const ownMs = this.turn?.endStep(this.#decodeTokens, this.promptTokens, stepMs) ?? stepMs;
    if (ownMs > 0) this.#cost.observe(this.#decodeTokens, this.promptTokens, ownMs);
    this.#hold.endStep(stepMs);
    this.#aloneMs = this.#lone === null ? 0 : this.#aloneMs + stepMs;
    const promptWaits = this.promptTokens === 0 && this.hasPrompts;
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
    this.#decodeOnlyMs = promptWaits ? this.#decodeOnlyMs + stepMs : 0;
  }

  /**
   * Where the least chunk takes longer than a step of decodes may, it goes in all the same as soon as decodes alone have
   * had half of its time: a long prompt takes at most about twice what it takes alone. Those of an adapter whose turn
   * begins have waited while others had theirs; steps of one token alone cannot have both, and have each every other time.
   */
  #isPromptDue({ fedPrompt }: Progress<S>): boolean {
    const isDecodesTime = fedPrompt && this.#limits.maxBatchTokens === 1 && this.#decodes.length > 0;
    if (this.turn?.isSwitch && !isDecodesTime) return true;
    if (this.#decodeOnlySteps >= this.#limits.maxDecodeStepsBeforePrefill) return true;
    return this.#decodeOnlySteps > 0 && this.#decodeOnlyMs >= this.#cost.promptMs(this.#grain) / 2;
  }

  get #running(): readonly S[] {
    return this.#admission.running;
  }

  /** Before prompts are fed: one that this step leaves a token short of its end must not join it a second time. */
  #collect(): void {
    this.#decodes.length = 0;
    this.#prompts.length = 0;
    for (const sequence of this.#running) {
      if (!sequence.isRunnable || !this.isInTurn(sequence)) continue;
      (isDecode(sequence) ? this.#decodes : this.#prompts).push(sequence);
    }
    this.#logitsRowsLeft = this.#model.capacity.maxLogitsRows - this.#running.length;
    const lone =
      this.#decodes.length + this.#prompts.length > 1 ? null : (this.#decodes[0] ?? this.#prompts[0] ?? null);
    if (lone !== this.#lone) this.#aloneMs = 0;
    this.#lone = lone;
  }

  /** Not where adapters take turns: decodes have been standing still for long when theirs comes. */
  #holdsDecodes(): boolean {
    if (this.turn?.isShared) {
      this.#hold.release();
      return false;
    }
    let promptTokens = 0;
    for (const { pending } of this.#prompts) promptTokens += pending;
    const crowd = { decodes: this.#decodes.length, prompts: this.#prompts.length };
    return this.#hold.decide({ ...crowd, promptTokens, allowance: this.#allowance(false) });
  }

  /** One token of each decoding sequence, and its draft; a budget too small for all takes them in turn. */
  #addDecodes(batch: Batch, own: Progress<S>, budget: number): void {
    const count = this.#decodes.length;
    let left = budget;
    let added = 0;
    for (; added < count; added++) {
      const sequence = this.#decodes[(own.decodeStart + added) % count] as S;
      if (sequence.state !== "running") continue;
      const { pending } = sequence;
      // Tokens that came at once may be more than a step takes: then they go in one after the other.
      if (left === 0 || (pending > left && this.#decodeTokens > 0)) break;
      const length = Math.min(pending, left);
      // The others' tokens come before this one's draft.
      const spare = Math.max(left - pending - (count - added - 1), 0);
      sequence.draftCount = Math.min(sequence.draftCount, spare, this.#logitsRowsLeft);
      if (!this.#addRow(batch, sequence, sequence.computed + length)) continue;
      left -= length + sequence.draftCount;
      this.#decodeTokens += length + sequence.draftCount;
    }
    if (added < count) own.decodeStart = (own.decodeStart + added) % count;
  }

  /** Chunks of prompts, and of what has to be fed again. */
  #addPrompts(batch: Batch, { order }: Progress<S>, allowance: number): void {
    if (allowance <= 0 || this.#prompts.length === 0) return;
    let left = allowance;
    let firstLength = 0;
    for (const sequence of order.arrange(this.#prompts)) {
      if (left <= 0) return;
      const to = this.#chunkEnd(sequence, left, batch);
      if (to <= sequence.computed) {
        if (this.#model.capabilities.wholeSequences) continue;
        return;
      }
      const tokens = to - sequence.computed;
      if (firstLength > 0 && tokens !== firstLength && !this.#mixesLengths) continue;
      if (!this.#addRow(batch, sequence, to)) continue;
      left -= tokens;
      firstLength ||= tokens;
      this.promptTokens += tokens;
      order.fed(sequence);
    }
  }

  get #own(): Progress<S> {
    const adapter = this.turn?.adapter ?? 0;
    const known = this.#progress.get(adapter);
    if (known !== undefined) return known;
    const own = { order: new PrefillOrder<S>(), decodeStart: 0, fedPrompt: false, tokensSinceDecodes: 0 };
    this.#progress.set(adapter, own);
    return own;
  }

  /** Prompt tokens for a step beside so many decodes; at least one grain where nothing else would run or it is due. */
  #allowance(due: boolean): number {
    const decodes = this.#decodes.length;
    const allowance = this.#cost.promptAllowance(decodes, this.turn?.longestStepMs ?? Infinity) ?? 0;
    if (decodes > 0) return due ? Math.max(allowance, this.#grain) : allowance;
    return Math.max(allowance, this.#grain, this.#loneAllowance(allowance));
  }

  /**
   * Tokens for the only prompt. All that is left of it, if that fits twice the allowance: a second pass for its end would
   * delay it by more than it delays a new request. Longer chunks, if the engine gains by them and has long run nothing else.
   */
  #loneAllowance(allowance: number): number {
    const [only, other] = this.#prompts;
    if (only === undefined || other !== undefined || this.turn?.isShared) return 0;
    if (only.pending <= allowance * loneRestFactor) return only.pending;
    if (this.#lone === null) return 0;
    return Math.min(this.#cost.loneAllowance(this.#aloneMs), this.#model.capabilities.chunkTokens.best);
  }

  /** Of the budget, where prompts come first: a turn that prompts begin may have no other step. */
  get #keptForDecodes(): number {
    return this.turn?.isShared ? Math.min(this.#decodes.length, this.#limits.maxBatchTokens >> 1) : 0;
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
    const hasDraft = sequence.draftCount > 0 && this.#admission.reserveFree(sequence, to + sequence.draftCount);
    if (!hasDraft) sequence.draftCount = 0;
    if (!hasDraft && !this.#admission.reserve(sequence, to, this.#step)) return false;
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
export function isDecode(sequence: Sequence): boolean {
  if (!sequence.isRunnable || sequence.isPooled) return false;
  return sequence.pending === 1 || (sequence.pending <= maxForcedRow && sequence.computed >= sequence.promptLength);
}
