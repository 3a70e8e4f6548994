// DesiredState: the operator's unfinished calls on one model, in order. The last call decides the final state: an unload also
// answers the reloads before it; a reload after an unload runs when that unload has finished.
import type { ModelOutcome } from "../api/model-management.ts";

type Call = "unload" | "reload";

interface PendingCall {
  readonly outcome: Promise<ModelOutcome>;
  readonly settle: (outcome: ModelOutcome) => void;
}

export class DesiredState {
  /** In the order of the latest call of each kind. */
  readonly #calls = new Map<Call, PendingCall>();

  /** Settles with the outcome. Equal calls that are pending at the same time share one promise. */
  call(call: Call): Promise<ModelOutcome> {
    const pending = this.#calls.get(call) ?? createCall();
    this.#calls.delete(call);
    this.#calls.set(call, pending);
    return pending.outcome;
  }

  has(call: Call): boolean {
    return this.#calls.has(call);
  }

  /** The final state: true after a reload, false after an unload or without a call. */
  get isLoaded(): boolean {
    return [...this.#calls.keys()].at(-1) === "reload";
  }

  /** Answers the reloads, except those after a pending unload. */
  loaded(outcome: ModelOutcome): void {
    if (!this.has("unload") || !this.isLoaded) this.settle("reload", outcome);
  }

  /** Answers the unloads, and the reloads too unless a reload is still to be tried. */
  unloaded(outcome: ModelOutcome): void {
    if (!this.isLoaded || outcome.error !== null) this.settle("reload", outcome);
    this.settle("unload", { ...outcome, error: null });
  }

  settle(call: Call, outcome: ModelOutcome): void {
    this.#calls.get(call)?.settle(outcome);
    this.#calls.delete(call);
  }
}

function createCall(): PendingCall {
  let settle = (_outcome: ModelOutcome): void => {};
  const outcome = new Promise<ModelOutcome>((resolve) => {
    settle = resolve;
  });
  return { outcome, settle };
}
