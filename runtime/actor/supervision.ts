// Supervision: restarts a place (thread or process) that has ended, after a backoff. If the place fails too often, it is not
// restarted, and the owner of the supervisor gets an error.
import { type Clock, realClock } from "../clock.ts";
import type { PeerExit } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import type { Place } from "../thread/place.ts";

export interface RestartPolicy {
  readonly kind: "stop" | "restart" | "escalate";
  /** Wait before the second restart, in ms. The first restart is immediate; each further wait is twice the previous one. */
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** Uptime in ms after which the count of restarts is reset. */
  readonly resetAfterMs: number;
  /** Maximum number of restarts in a row before the supervisor gives up. */
  readonly maxRestarts: number;
}

export interface SuperviseOptions<Ready> {
  readonly name: string;
  /** Starts the place (thread or process). The signal fires if the supervisor is stopped during the start. */
  readonly start: (signal: AbortSignal) => Promise<Place<Ready>>;
  readonly policy: RestartPolicy;
  readonly clock?: Clock;
  /** Called when the place (thread or process) has started. If this throws, the place is killed and counts as crashed. */
  onUp(place: Place<Ready>): void | Promise<void>;
  /**
   * Called when the place (thread or process) has ended or did not start. A start that stop() has cancelled is an orderly exit.
   * `next`: time in ms until the place is started again; null if it is not restarted.
   */
  onDown(exit: PeerExit, next: { readonly retryInMs: number } | null): void;
  /** Called when the supervisor has given up. No further calls follow. */
  onEscalate(error: ServerError): void;
}

export interface Supervisor {
  /** Stops the place (thread or process) permanently, even while it starts. Resolves when the place has ended. */
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

  /** Starts the place (thread or process) and waits until it ends. Never rejects. */
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
      exit = { reason: messageOf(error), code: null, signal: null, orderly: this.#isStopped };
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

/** Returns the wait in ms before the next restart, after `restarts` restarts in a row. */
function backoffMs(policy: RestartPolicy, restarts: number): number {
  return restarts === 0 ? 0 : Math.min(policy.maxBackoffMs, policy.minBackoffMs * 2 ** (restarts - 1));
}

/** Returns whether another attempt would fail for the same reason. */
function isHopeless(startError: unknown): boolean {
  return startError instanceof ServerError && !startError.retryable;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
