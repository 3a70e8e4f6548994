// DesiredState: the operator's unfinished calls on one model, in order, and the idle timer's verdict. The last call decides
// the final state: an unload also answers the reloads before it; a reload after an unload runs when that unload has finished.
import type { ModelOutcome } from "../api/model-management.ts";

/** Why a model leaves memory while the server runs. */
export type UnloadReason = "unload" | "evict" | "idle" | "reload";

type Call = "unload" | "reload";

interface PendingCall {
  readonly outcome: Promise<ModelOutcome>;
  readonly settle: (outcome: ModelOutcome) => void;
}

export class DesiredState {
  /** The model has had no request for the idle time. */
  isIdle = false;
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

  /** The last call is a reload. */
  get isLoaded(): boolean {
    return [...this.#calls.keys()].at(-1) === "reload";
  }

  /** The most pressing reason to unload the model; null: it may stay. */
  unloadReason(isEvicted: boolean): UnloadReason | null {
    if (this.has("unload")) return "unload";
    if (isEvicted) return "evict";
    if (this.isIdle) return "idle";
    return this.has("reload") ? "reload" : null;
  }

  /** Answers the reloads, except those after a pending unload. */
  loaded(outcome: ModelOutcome): void {
    if (!this.has("unload") || !this.isLoaded) this.#settle("reload", outcome);
  }

  /** The model has left memory, or could not be loaded. Keeps a final reload that has not been tried. */
  unloaded(outcome: ModelOutcome): void {
    this.isIdle = false;
    if (!this.isLoaded || outcome.error !== null) this.#settle("reload", outcome);
    this.#settle("unload", { ...outcome, error: null });
  }

  /** Answers all calls: the server stops. */
  end(outcome: ModelOutcome): void {
    this.#settle("reload", outcome);
    this.#settle("unload", outcome);
  }

  #settle(call: Call, outcome: ModelOutcome): void {
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
