// Adapter rotation: picks the adapter of the next step on engines that can run only one adapter per step (the base
// model counts as an adapter). An adapter runs for a quantum of several steps. Then the adapter that has waited longest
// runs. Callers pass in durations; the rotation reads no clock.
import type { Sequence } from "./sequence.ts";
import type { StepTimeModel } from "./step-time-model.ts";

/**
 * Length of a quantum, as a multiple of the time of one adapter switch. At 8, switches take a ninth of the time. The
 * number of steps is the same for every adapter (it is derived from the mean step time), so all sequences decode at the
 * same pace. A quantum has at least two steps: the first step serves prompts, and the second step decodes.
 */
const quantumPerSwitch = 8;
const leastSteps = 2;
/**
 * Maximum time in ms of one round over all adapters. With many adapters or long prompts, quanta end early to keep
 * this limit. Chosen by hand.
 */
const roundMs = 1000;
/**
 * If all sequences of an adapter wait for grammar masks, its quantum ends after this number of failed attempts to
 * schedule it. Chosen by hand.
 */
const mostLooks = 4;
/** Initial estimate of the time of a switch, and the weight of each new measurement in the estimate. Chosen by hand. */
const assumedSwitchMs = 8;
const smoothing = 0.2;
/**
 * Weight of each quantum in the mean step time. With a small weight, adapters with longer steps get almost the same
 * number of steps as other adapters. Chosen by hand.
 */
const meanSmoothing = 0.05;

export class AdapterRotation {
  adapter = 0;
  /** Number of steps that used a different adapter than the previous step. */
  switches = 0;
  /** Number of adapters with runnable sequences when the current adapter was chosen; at least 1. */
  count = 1;
  /** By adapter: the number of its most recent quantum. Quanta are numbered in order, over all adapters. */
  readonly #lastTurn = new Map<number, number>();
  #turns = 0;
  #steps = 0;
  #elapsedMs = 0;
  #looks = 0;
  #steppedAdapter = 0;
  #switchMs = assumedSwitchMs;
  /** Mean step time over the quanta of all adapters, in ms; 0 before the first quantum. */
  #meanStepMs = 0;

  /** Whether several adapters have runnable sequences. */
  get isShared(): boolean {
    return this.count > 1;
  }

  /** Whether the next step uses a different adapter than the previous step. */
  get isSwitch(): boolean {
    return this.adapter !== this.#steppedAdapter;
  }

  /**
   * Maximum time of the next step, in ms, so that a round over all adapters takes at most `roundMs`; Infinity if only
   * one adapter has runnable sequences.
   */
  get longestStepMs(): number {
    return this.isShared ? Math.max(this.#longestMs - this.#elapsedMs, 0) : Infinity;
  }

  /** Picks the adapter of the next step. Repeated calls before this step give the same result. */
  choose(running: readonly Sequence[]): void {
    const adapters = new Set<number>();
    for (const one of running) {
      if (one.isRunnable || (one.adapter === this.adapter && awaitsGrammarOnly(one))) adapters.add(one.adapter);
    }
    this.count = Math.max(adapters.size, 1);
    const next = this.#isOver || !adapters.has(this.adapter) ? this.#next(running) : this.adapter;
    if (next !== this.adapter) this.#begin(next);
  }

  /**
   * Switches to the next adapter because the current adapter has no row in this step. Returns false if no other adapter
   * can run. Also returns false for a few tries while sequences of the current adapter wait only for grammar masks.
   */
  pass(running: readonly Sequence[]): boolean {
    const isHeld = running.some((one) => one.adapter === this.adapter && awaitsGrammarOnly(one));
    if (isHeld && this.#looks++ < mostLooks) return false;
    const next = this.#next(running);
    if (next === this.adapter) return false;
    this.#begin(next);
    return true;
  }

  /**
   * Ends a step. Returns the duration of the step without the adapter switch, in ms; 0 if that duration is too
   * uncertain.
   */
  endStep(decodeTokens: number, promptTokens: number, stepMs: number, cost: StepTimeModel): number {
    const isSwitch = this.isSwitch;
    if (isSwitch && promptTokens === 0 && cost.decodeMs(decodeTokens) > 0) {
      const seenMs = Math.max(stepMs - cost.decodeMs(decodeTokens), 0);
      this.#switchMs += smoothing * (Math.min(seenMs, 2 * this.#switchMs + 1) - this.#switchMs);
    }
    const ownMs = isSwitch ? Math.max(stepMs - this.#switchMs, stepMs / 2) : stepMs;
    if (isSwitch) this.switches++;
    this.#steppedAdapter = this.adapter;
    this.#steps++;
    this.#elapsedMs += ownMs;
    this.#looks = 0;
    return isSwitch && promptTokens === 0 ? 0 : ownMs;
  }

  /** Forgets an adapter that has been unloaded. Its number is never used again. */
  forget(adapter: number): void {
    this.#lastTurn.delete(adapter);
  }

  get #isOver(): boolean {
    if (this.#steps < leastSteps) return false;
    const isSpent = this.#steps * this.#meanStepMs >= quantumPerSwitch * this.#switchMs;
    return isSpent || this.#elapsedMs >= this.#longestMs;
  }

  /** Maximum time in ms of a quantum without its switch, so that a round over all adapters takes at most `roundMs`. */
  get #longestMs(): number {
    return Math.max(roundMs / this.count - this.#switchMs, this.#switchMs);
  }

  /**
   * Returns the runnable adapter whose last quantum was longest ago, except the current adapter. Returns the current
   * adapter if no other adapter is runnable.
   */
  #next(running: readonly Sequence[]): number {
    let next = this.adapter;
    let oldest = Infinity;
    for (const { adapter, isRunnable } of running) {
      const last = this.#lastTurn.get(adapter) ?? 0;
      if (!isRunnable || adapter === this.adapter || last >= oldest) continue;
      next = adapter;
      oldest = last;
    }
    return next;
  }

  #begin(adapter: number): void {
    const quantumMeanMs = this.#elapsedMs / Math.max(this.#steps, 1);
    this.#meanStepMs += (this.#meanStepMs === 0 ? 1 : meanSmoothing) * (quantumMeanMs - this.#meanStepMs);
    this.#lastTurn.set(adapter, ++this.#turns);
    this.adapter = adapter;
    this.#steps = 0;
    this.#elapsedMs = 0;
    this.#looks = 0;
  }
}

function awaitsGrammarOnly({ state, blockedBy }: Sequence): boolean {
  return state === "running" && blockedBy.size === 1 && blockedBy.has("grammar");
}
