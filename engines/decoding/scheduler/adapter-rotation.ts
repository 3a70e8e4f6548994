// Adapter rotation: picks the adapter of the next step on engines whose rows must all have one adapter (the base model
// counts as one). An adapter keeps the engine for a quantum of steps, then the one that waited longest gets it. It is told
// durations and reads no clock.
import type { Sequence } from "./sequence.ts";
import type { StepTimeModel } from "./step-time-model.ts";

/**
 * A quantum lasts this many times as long as a switch, so that switches take a ninth of the time. It is counted in steps of
 * mean duration, equally many for every adapter, so that every sequence keeps the same pace. The first step of a quantum
 * serves prompts first and the second decodes, hence the least.
 */
const quantumPerSwitch = 8;
const leastSteps = 2;
/** Longest round of all adapters: with many adapters, or beside long prompts, quanta end early. Chosen by hand. */
const roundMs = 1000;
/** Idle looks at an adapter whose sequences all wait for grammar masks, before it loses its quantum. Chosen by hand. */
const mostLooks = 4;
/** Estimate of a switch until one has been seen, and the weight of each newly seen one. Chosen by hand. */
const assumedSwitchMs = 8;
const smoothing = 0.2;
/** Weight of each quantum in the mean step: small, so that adapters with longer steps get hardly fewer. Chosen by hand. */
const meanSmoothing = 0.05;

export class AdapterRotation {
  adapter = 0;
  /** Steps that ran with another adapter than the step before. */
  switches = 0;
  /** Adapters that had something to run when the current one was chosen; 1 if the current one is alone. */
  count = 1;
  /** The number of each adapter's last quantum. */
  readonly #lastTurn = new Map<number, number>();
  #turns = 0;
  #steps = 0;
  #elapsedMs = 0;
  #looks = 0;
  #steppedAdapter = 0;
  #switchMs = assumedSwitchMs;
  /** Mean step over the quanta of all adapters; 0 before the first. */
  #meanStepMs = 0;

  /** Several adapters have something to run. */
  get isShared(): boolean {
    return this.count > 1;
  }

  /** The next step has another adapter than the step before. */
  get isSwitch(): boolean {
    return this.adapter !== this.#steppedAdapter;
  }

  /** Longest step that keeps the round within `roundMs`. */
  get longestStepMs(): number {
    return this.isShared ? Math.max(this.#longestMs - this.#elapsedMs, 0) : Infinity;
  }

  /** Picks the adapter of the next step. Idempotent until that step has run. */
  choose(running: readonly Sequence[]): void {
    const adapters = new Set<number>();
    for (const one of running) {
      if (one.isRunnable || (one.adapter === this.adapter && awaitsGrammarOnly(one))) adapters.add(one.adapter);
    }
    this.count = Math.max(adapters.size, 1);
    const next = this.#isOver || !adapters.has(this.adapter) ? this.#next(running) : this.adapter;
    if (next !== this.adapter) this.#begin(next);
  }

  /** The current adapter has no row in this step: gives its quantum to the next one. False if waiting is better. */
  pass(running: readonly Sequence[]): boolean {
    const isHeld = running.some((one) => one.adapter === this.adapter && awaitsGrammarOnly(one));
    if (isHeld && this.#looks++ < mostLooks) return false;
    const next = this.#next(running);
    if (next === this.adapter) return false;
    this.#begin(next);
    return true;
  }

  /** Closes a step. Returns its duration without the switch; 0 if that is not known well enough to learn from. */
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

  /** An adapter is gone; its number never comes back. */
  forget(adapter: number): void {
    this.#lastTurn.delete(adapter);
  }

  get #isOver(): boolean {
    if (this.#steps < leastSteps) return false;
    const isSpent = this.#steps * this.#meanStepMs >= quantumPerSwitch * this.#switchMs;
    return isSpent || this.#elapsedMs >= this.#longestMs;
  }

  /** Time of a quantum, without its switch, that keeps the round within `roundMs`. */
  get #longestMs(): number {
    return Math.max(roundMs / this.count - this.#switchMs, this.#switchMs);
  }

  /** The other adapter with something to run whose last quantum is longest ago; the current one if there is none. */
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
