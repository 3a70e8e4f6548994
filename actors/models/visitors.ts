// Owns the requests of one model: which are on it, which wait for it, and whether more may come in. ManagedModel opens the door
// when the model answers and closes it before it leaves; nobody else does.
import type { Clock } from "../../runtime/clock.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { ModelUse } from "./model-use.ts";
import { WaitingRoom } from "./waiting-room.ts";

export interface VisitorsOptions {
  readonly modelId: string;
  readonly clock: Clock;
  /** Most requests that wait; each does so for waitMs. */
  readonly maxWaiting: number;
  readonly waitMs: number;
  /** A model that has no request for so long is idle; 0 = never. */
  readonly idleMs: number;
  readonly onIdle: () => void;
  /** One that waited has left unanswered, and it was the last. */
  readonly onDeserted: () => void;
}

export class Visitors {
  readonly #use: ModelUse;
  readonly #room: WaitingRoom;
  #isOpen = false;

  constructor({ modelId, clock, maxWaiting, waitMs, idleMs, onIdle, onDeserted }: VisitorsOptions) {
    this.#use = new ModelUse({ clock, idleMs, onIdle });
    this.#room = new WaitingRoom({ modelId, maxWaiting, timeoutMs: waitMs, clock, onDeserted });
  }

  get inFlight(): number {
    return this.#use.inFlight;
  }

  get lastUsedMs(): number {
    return this.#use.lastUsedMs;
  }

  /** Some wait. */
  get areWaiting(): boolean {
    return !this.#room.isEmpty;
  }

  /** Lets a request in where the door is open; leave() ends it. */
  tryEnter(): boolean {
    if (this.#isOpen) this.#use.begin();
    return this.#isOpen;
  }

  /** Settles when the request is in. Rejects with queue_full, model_loading after a while, `cancelled`, or refuse()'s. */
  wait(signal: AbortSignal | null, client: string): Promise<void> {
    return this.#room.wait(signal, client);
  }

  leave(): void {
    this.#use.end();
  }

  /** Lets in whoever waits and comes, and nobody waits until none is in; from now on the model can be idle. */
  open(): void {
    this.#isOpen = true;
    this.#use.stopWaiting();
    this.#use.watch();
    this.#room.admitAll(() => this.#use.begin());
  }

  /** Those that are in stay, those that come wait. */
  close(): void {
    this.#isOpen = false;
    this.#use.unwatch();
  }

  /** Closes, and nobody waits until none is in: the model is gone, and those that are in learn it from others. */
  abandon(): void {
    this.close();
    this.#use.stopWaiting();
  }

  /** Settles when none is in, or with open() or abandon(). For one caller at a time. */
  async drained(): Promise<void> {
    await this.#use.drained();
  }

  /** Turns those away that wait. */
  refuse(error: ErrorRecord): void {
    this.#room.refuseAll(error);
  }
}
