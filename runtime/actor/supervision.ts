// Owns the decision what happens when a place dies: stay down, start again after a backoff, or give up and tell whoever is
// in charge. Used by whoever owns a place; knows nothing of what runs in it.
import { type Clock, realClock } from "../clock.ts";
import type { PeerExit } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import type { Place } from "../thread/place.ts";

export interface RestartPolicy {
  readonly kind: "stop" | "restart" | "escalate";
  /** The first restart is immediate, the second waits this long, and each further one twice as long as the one before. */
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** A place that stays up this long is healthy: counting starts again. */
  readonly resetAfterMs: number;
  /** Restarts in a row before the supervisor escalates. */
  readonly maxRestarts: number;
}

export interface SuperviseOptions<Ready> {
  readonly name: string;
  /** Starts the place; the signal fires when the supervisor is stopped meanwhile. */
  readonly start: (signal: AbortSignal) => Promise<Place<Ready>>;
  readonly policy: RestartPolicy;
  readonly clock?: Clock;
  /** The place runs. If this throws, the place is killed and counts as crashed. */
  onUp(place: Place<Ready>): void | Promise<void>;
  /** The place is gone or did not start; `next` says when it is tried again, null if it is not. */
  onDown(exit: PeerExit, next: { readonly retryInMs: number } | null): void;
  /** The supervisor has given up; it does nothing more. */
  onEscalate(error: ServerError): void;
}

export interface Supervisor {
  /** Stops the place, or the attempt to start it, and never starts it again. Settles when it is gone. */
  stop(deadlineMs: number): Promise<void>;
}

export function supervise<Ready>(options: SuperviseOptions<Ready>): Supervisor {
  return new PlaceSupervisor(options);
}

class PlaceSupervisor<Ready> implements Supervisor {
  readonly #options: SuperviseOptions<Ready>;
  readonly #clock: Clock;
  readonly #stopRequest = new AbortController();
  #restarts = 0;
  #place: Place<Ready> | null = null;
  #attempt: Promise<void>;
  #cancelRetry: () => void = () => {};

  constructor(options: SuperviseOptions<Ready>) {
    this.#options = options;
    this.#clock = options.clock ?? realClock;
    this.#attempt = this.#start();
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopRequest.abort();
    this.#cancelRetry();
    await this.#place?.stop(deadlineMs);
    await this.#attempt;
  }

  get #isStopped(): boolean {
    return this.#stopRequest.signal.aborted;
  }

  /** One life of the place, from start to whatever ends it. Never rejects. */
  async #start(): Promise<void> {
    let startError: unknown = null;
    let upAt: number | null = null;
    let exit: PeerExit;
    try {
      const place = await this.#options.start(this.#stopRequest.signal);
      upAt = this.#clock.now();
      exit = await this.#live(place);
    } catch (error) {
      startError = error;
      exit = { reason: messageOf(error), code: null, signal: null, orderly: false };
    }
    const upMs = upAt === null ? 0 : this.#clock.now() - upAt;
    if (upMs >= this.#options.policy.resetAfterMs) this.#restarts = 0;
    this.#decide(exit, startError);
  }

  async #live(place: Place<Ready>): Promise<PeerExit> {
    this.#place = place;
    try {
      if (this.#isStopped) place.kill();
      else await Promise.race([this.#options.onUp(place), place.exit]);
      return await place.exit;
    } catch (error) {
      place.kill();
      await place.exit;
      throw error;
    } finally {
      this.#place = null;
    }
  }

  #decide(exit: PeerExit, startError: unknown): void {
    const options = this.#options;
    const { policy } = options;
    if (this.#isStopped || exit.orderly || policy.kind === "stop") {
      options.onDown(exit, null);
    } else if (policy.kind === "escalate" || this.#restarts >= policy.maxRestarts || isHopeless(startError)) {
      options.onDown(exit, null);
      options.onEscalate(this.#escalation(exit, startError));
    } else {
      const retryInMs = backoffMs(policy, this.#restarts);
      this.#restarts++;
      this.#cancelRetry = this.#clock.setTimeout(() => {
        this.#attempt = this.#start();
      }, retryInMs);
      options.onDown(exit, { retryInMs });
    }
  }

  #escalation(exit: PeerExit, startError: unknown): ServerError {
    if (startError instanceof ServerError) return startError;
    const text = `"${this.#options.name}" is down after ${this.#restarts} restarts: ${exit.reason}`;
    return new ServerError("peer_gone", text, { cause: startError ?? undefined });
  }
}

/** How long to wait before a restart, given how many there were in a row. */
function backoffMs(policy: RestartPolicy, restarts: number): number {
  return restarts === 0 ? 0 : Math.min(policy.maxBackoffMs, policy.minBackoffMs * 2 ** (restarts - 1));
}

/** A start that failed for a reason that trying again cannot change. */
function isHopeless(startError: unknown): boolean {
  return startError instanceof ServerError && !startError.retryable;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
