// DesiredState: the operator's pending calls to load or unload one model, in order. The last call decides the final state. When
// an unload finishes, earlier reloads are settled too. A reload after an unload starts when that unload has finished.
import { type Deferred, deferred } from "../../runtime/deferred.ts";
import type { ModelOutcome } from "../api/model-management.ts";

type Call = "unload" | "reload";

export class DesiredState {
  /** Pending calls by kind. The latest call is the last entry. */
  readonly #calls = new Map<Call, Deferred<ModelOutcome>>();

  /** Adds a call and returns its outcome. Pending calls of the same kind share one promise. */
  call(call: Call): Promise<ModelOutcome> {
    const pending = this.#calls.get(call) ?? deferred();
    this.#calls.delete(call);
    this.#calls.set(call, pending);
    return pending.promise;
  }

  has(call: Call): boolean {
    return this.#calls.has(call);
  }

  /** Whether the model must be loaded in the end: true after a reload call, false after an unload call or without a call. */
  get isLoaded(): boolean {
    return [...this.#calls.keys()].at(-1) === "reload";
  }

  /** Settles the pending reload calls after a load. A reload that was called after a pending unload is not settled. */
  loaded(outcome: ModelOutcome): void {
    if (!this.has("unload") || !this.isLoaded) this.settle("reload", outcome);
  }

  /**
   * Settles the pending unload calls after an unload. If the last call is an unload, or a load has failed, also settles the
   * pending reload calls.
   */
  unloaded(outcome: ModelOutcome): void {
    if (!this.isLoaded || outcome.error !== null) this.settle("reload", outcome);
    this.settle("unload", { ...outcome, error: null });
  }

  settle(call: Call, outcome: ModelOutcome): void {
    this.#calls.get(call)?.resolve(outcome);
    this.#calls.delete(call);
  }
}
