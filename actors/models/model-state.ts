// Owns what one model is at the moment, and what that tells whoever asks: its status, the error it has, and why a request is
// not even to wait. Moved by ManagedModel alone.
import type { Clock } from "../../runtime/clock.ts";
import type { ErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { ModelStatus } from "../api/inference.ts";
import type { ModelOutcome } from "../api/model-management.ts";
import { LoadFailure } from "./load-failure.ts";
import { loading } from "./served-model.ts";
import { checkTransition, firstStatus, type TransitionReason } from "./transitions.ts";

export interface StandingOptions {
  readonly modelId: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a model that could not be loaded is not tried again for a request. */
  readonly restMs: number;
}

export class ModelState {
  readonly #options: StandingOptions;
  #status: ModelStatus = firstStatus;
  /** Nobody asked for the loading under way but the server's start or a crash: requests are told to come again. */
  #comesByItself = false;
  /** Why it could not be loaded, or did not stay up, the last time. */
  #failure: LoadFailure | null = null;

  constructor(options: StandingOptions) {
    this.#options = options;
  }

  get status(): ModelStatus {
    return this.#status;
  }

  /** Why it could not be loaded, or did not stay up. */
  get error(): ServerError | null {
    return this.#failure?.error ?? null;
  }

  get outcome(): ModelOutcome {
    const error = this.#status === "unloaded" ? (this.#failure?.record ?? null) : null;
    return { id: this.#options.modelId, status: this.#status, error };
  }

  /** What a request is told that is not to wait; null where it may. */
  get refusal(): ErrorRecord | null {
    if (this.#comesByItself) return loading(this.#options.modelId);
    return this.#failure?.isRecent ? this.outcome.error : null;
  }

  move(to: ModelStatus, reason: TransitionReason): void {
    const { modelId, log } = this.#options;
    const from = this.#status;
    checkTransition(from, to, reason);
    this.#status = to;
    this.#comesByItself = reason === "start" || reason === "crash";
    if (to === "reloading") this.#failure = null;
    log.debug({ model: modelId, from, to, reason }, "model status");
  }

  /** It is about to be moved out of memory because of this error. Returns what those are told that wait for it. */
  failed(error: ServerError): ErrorRecord {
    this.#failure = new LoadFailure({ ...this.#options, error });
    return this.#failure.record;
  }
}
