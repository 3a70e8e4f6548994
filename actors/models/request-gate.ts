// RequestGate: admits the requests of one model. While the gate is open, requests enter and are counted until they leave. While
// it is closed, requests wait for the model to be loaded: up to max_queue requests, shared fairly between clients, each for up to
// load_timeout_secs. ManagedModel opens and closes the gate.
import type { Clock } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { QueueShares } from "../../runtime/queues/queue-shares.ts";
import type { ServiceOptions } from "../front/service-options.ts";
import type { ServedModel } from "./served-model.ts";

/**
 * `loadTimeoutMs`: maximum wait of a request. `idleUnloadMs`: milliseconds without requests after which an open gate counts as
 * idle; 0 = never.
 */
export interface GateOptions extends Pick<ServiceOptions, "loadTimeoutMs" | "idleUnloadMs"> {
  readonly served: Pick<ServedModel, "id">;
  readonly clock: Clock;
  /** Maximum number of waiting requests. */
  readonly maxWaiting: number;
}

interface Waiting {
  readonly client: string;
  /** Ends the wait. `error`: null = the request is admitted; otherwise it is rejected with the error. */
  readonly settle: (error: ServerError | null) => void;
}

export class RequestGate {
  /** Number of running requests. */
  inFlight = 0;
  isIdle = false;
  /** Clock time in ms of the last use: the gate was opened, or a request entered or left. */
  lastUsedMs: number;
  /** Time at which the gate was last closed, in ms of performance.now(). */
  closedMs = 0;
  readonly #options: GateOptions;
  readonly #onChange: () => void;
  readonly #waiting = new Set<Waiting>();
  readonly #shares = new QueueShares();
  #isOpen = false;
  #cancelIdleTimer = (): void => {};

  /** `onChange` is called when a request has left or stopped waiting, or when the gate has become idle. */
  constructor(options: GateOptions, onChange: () => void) {
    this.#options = options;
    this.#onChange = onChange;
    this.lastUsedMs = options.clock.now();
  }

  get hasWaiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** Admits a request if the gate is open. Returns whether it was admitted. leave() must be called when the request has ended. */
  tryEnter(): boolean {
    if (this.#isOpen) this.#use(1);
    return this.#isOpen;
  }

  leave(): void {
    this.#use(-1);
    this.#onChange();
  }

  /** Waits until the request is admitted. Rejects with queue_full, model_loading, cancelled, or the error of refuse(). */
  wait(signal: AbortSignal | null, client: string): Promise<void> {
    const { served, loadTimeoutMs, clock } = this.#options;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw cancelled();
      this.#makeRoom(client);
      const settle = (error: ServerError | null): void => {
        cancelTimer();
        signal?.removeEventListener("abort", cancel);
        this.#waiting.delete(waiting);
        this.#shares.remove(client);
        if (error === null) resolve();
        else reject(error);
      };
      const giveUp = (error: ServerError): void => {
        settle(error);
        this.#onChange();
      };
      const cancel = (): void => giveUp(cancelled());
      const cancelTimer = clock.setTimeout(() => giveUp(late(served.id, loadTimeoutMs)), loadTimeoutMs);
      signal?.addEventListener("abort", cancel, { once: true });
      const waiting = { client, settle };
      this.#waiting.add(waiting);
      this.#shares.add(client);
    });
  }

  /** Opens the gate: admits waiting and future requests. Opening counts as use. */
  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#use(0);
    for (const { settle } of this.#waiting) {
      this.#use(1);
      settle(null);
    }
  }

  /** Closes the gate: running requests continue, new ones wait. */
  close(): void {
    if (this.#isOpen) this.closedMs = performance.now();
    this.#isOpen = false;
    this.#cancelIdleTimer();
  }

  /** Rejects the waiting requests. */
  refuse(error: ErrorRecord): void {
    for (const { settle } of this.#waiting) settle(fromErrorRecord(error));
  }

  #use(change: 1 | 0 | -1): void {
    const { clock, idleUnloadMs } = this.#options;
    this.inFlight += change;
    this.lastUsedMs = clock.now();
    this.isIdle = false;
    this.#cancelIdleTimer();
    if (!this.#isOpen || this.inFlight > 0 || idleUnloadMs === 0) return;
    this.#cancelIdleTimer = clock.setTimeout(() => {
      this.isIdle = true;
      this.#onChange();
    }, idleUnloadMs);
  }

  /**
   * Makes room in the queue by rejecting the newest request of a client with more waiting requests. Throws queue_full if there is
   * no such client.
   */
  #makeRoom(client: string): void {
    const { served, maxWaiting } = this.#options;
    const newestOf = (other: string) => [[...this.#waiting].filter((one) => one.client === other).slice(-1)].values();
    const displaced = this.#shares.displacedBy(client, 1, maxWaiting - this.#waiting.size, newestOf);
    if (displaced === null) throw full(served.id, maxWaiting);
    for (const { settle } of displaced) settle(full(served.id, maxWaiting, displacement));
  }
}

const displacement = ", most of them this client's; a request of another client took the place of this one";

function full(modelId: string, maxWaiting: number, more = ""): ServerError {
  const message = `${maxWaiting} requests (max_queue) already wait for model "${modelId}" to be loaded${more}; try again later`;
  return new ServerError("queue_full", message);
}

function late(modelId: string, waitMs: number): ServerError {
  const message = `model "${modelId}" was not loaded within ${waitMs} ms (load_timeout_secs); try again later`;
  return new ServerError("model_loading", message);
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while its model was being loaded");
}
