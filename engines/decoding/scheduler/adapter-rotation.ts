// Owns whose turn it is where a step can have one adapter only: the rows of a step are all of one adapter, the base model
// counting as one. Changing adapters costs a step some time, so an adapter keeps its turn for a few steps. Used by the step
// filler only; it is told durations and never looks at a clock.
import type { Sequence } from "./sequence.ts";
import type { StepTimeModel } from "./step-time-model.ts";

/** A turn lasts so many times as long as a change of adapters takes: those take a ninth of all time. */
const turnPerSwitch = 8;
/**
 * No longer is a round of turns to last: where many adapters have something to run their turns are shorter, down to what a
 * change takes.
 */
const longestRoundMs = 1000;
const leastTurnMs = 1;
/** What a change is taken to cost until one has been seen. */
const assumedSwitchMs = 8;
/** Weight of the newest change; one that took far longer than expected was disturbed, and is believed up to here. */
const smoothing = 0.2;
const believedFactor = 2;
const believedMs = 1;
/** An adapter whose sequences all wait for their grammars' next masks keeps its turn for so many looks at them. */
const mostLooks = 4;

export class AdapterRotation {
  /** Steps that ran with another adapter than the one before. */
  switches = 0;
  readonly #cost: StepTimeModel;
  /** The number of each adapter's last turn. */
  readonly #lastTurn = new Map<number, number>();
  /** Runnable sequences of each adapter, while a turn is measured. */
  readonly #counts = new Map<number, number>();
  #adapter = 0;
  #turns = 0;
  #isShared = false;
  #lengthMs = 0;
  #longestMs = Infinity;
  #elapsedMs = 0;
  #looks = 0;
  /** Adapter of the last step that ran. */
  #steppedAdapter = 0;
  #switchMs = assumedSwitchMs;

  constructor(cost: StepTimeModel) {
    this.#cost = cost;
  }

  /** Whose rows the next step may have. */
  get adapter(): number {
    return this.#adapter;
  }

  /** Whether others have something to run, too. */
  get isShared(): boolean {
    return this.#isShared;
  }

  /** How long a step may take for a round of turns not to last too long. */
  get longestStepMs(): number {
    return this.#isShared ? this.#longestMs : Infinity;
  }

  /** Whether the next step has another adapter than the one before. */
  get isSwitch(): boolean {
    return this.#adapter !== this.#steppedAdapter;
  }

  /** Turns so far. */
  get count(): number {
    return this.#turns;
  }

  /** Settles whose turn the next step is. Asked again before that step, it says the same, unless that one cannot run. */
  choose(running: readonly Sequence[]): void {
    let isWanted = false;
    let othersWait = false;
    for (const sequence of running) {
      if (sequence.adapter !== this.#adapter) othersWait ||= sequence.isRunnable;
      else isWanted ||= sequence.isRunnableOrHeld;
    }
    if (!othersWait) {
      this.#isShared = false;
      return;
    }
    if (isWanted && !this.#isShared) this.#measure(running);
    if (!isWanted || this.#elapsedMs >= this.#lengthMs) this.#begin(this.#next(running), running);
  }

  /**
   * The one whose turn it is has nothing that can run now: gives the turn to another one that has not had it since turn
   * number `since`. False where there is none, or it is worth a moment's wait.
   */
  pass(running: readonly Sequence[], since: number): boolean {
    const isHeld = running.some((one) => one.adapter === this.#adapter && one.isRunnableOrHeld && !one.isRunnable);
    if (isHeld && this.#looks++ < mostLooks) return false;
    if (this.#lastTurn.has(this.#adapter)) this.#lastTurn.set(this.#adapter, ++this.#turns);
    const next = this.#next(running);
    if (next === this.#adapter || (this.#lastTurn.get(next) ?? 0) > since) return false;
    this.#begin(next, running);
    return true;
  }

  /**
   * Closes a step. Returns how long it took without the change of adapters; 0 where that is not well known, and other
   * steps of the turn will tell.
   */
  endStep(decodeTokens: number, promptTokens: number, stepMs: number): number {
    this.#looks = 0;
    if (!this.isSwitch) {
      this.#elapsedMs += stepMs;
      return stepMs;
    }
    this.switches++;
    this.#steppedAdapter = this.#adapter;
    const expectedMs = this.#cost.decodeMs(decodeTokens);
    if (promptTokens === 0 && expectedMs > 0) this.#learn(Math.max(stepMs - expectedMs, 0));
    const ownMs = Math.max(stepMs - this.#switchMs, stepMs / 2);
    this.#elapsedMs += ownMs;
    return this.#isShared && this.#elapsedMs >= this.#lengthMs ? ownMs : 0;
  }

  /** An adapter is gone; its number never comes back. */
  forget(adapter: number): void {
    this.#lastTurn.delete(adapter);
  }

  /** The one whose turn is longest ago, of those that have something to run; the present one where no other has. */
  #next(running: readonly Sequence[]): number {
    let next = this.#adapter;
    let longestAgo = Number.POSITIVE_INFINITY;
    for (const { adapter, isRunnable } of running) {
      const last = this.#lastTurn.get(adapter) ?? 0;
      if (!isRunnable || adapter === this.#adapter || last >= longestAgo) continue;
      next = adapter;
      longestAgo = last;
    }
    return next;
  }

  #begin(adapter: number, running: readonly Sequence[]): void {
    this.#adapter = adapter;
    this.#lastTurn.set(adapter, ++this.#turns);
    this.#elapsedMs = 0;
    this.#looks = 0;
    this.#measure(running);
  }

  /**
   * How long this turn may last. All adapters may run as many decode steps, whatever those take: so every sequence comes
   * on at the same pace, with few beside it or many. The time of prompts is part of their adapter's.
   */
  #measure(running: readonly Sequence[]): void {
    const counts = this.#counts;
    counts.clear();
    for (const { adapter, isRunnable } of running) if (isRunnable) counts.set(adapter, (counts.get(adapter) ?? 0) + 1);
    this.#isShared = counts.size > 1 || (counts.size === 1 && !counts.has(this.#adapter));
    let allMs = 0;
    for (const count of counts.values()) allMs += this.#cost.decodeMs(count);
    const share = allMs === 0 ? 1 : (this.#cost.decodeMs(counts.get(this.#adapter) ?? 1) * counts.size) / allMs;
    this.#longestMs = Math.max(longestRoundMs / counts.size - this.#switchMs, this.#switchMs);
    this.#lengthMs = Math.max(Math.min(turnPerSwitch * this.#switchMs, this.#longestMs) * share, leastTurnMs);
  }

  #learn(tookMs: number): void {
    const believed = Math.min(tookMs, this.#switchMs * believedFactor + believedMs);
    this.#switchMs += smoothing * (believed - this.#switchMs);
  }
}
