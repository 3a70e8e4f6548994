// Owns the life of one model: whether it is in memory, what brings it there and takes it away, and which requests are on it,
// wait for it or are refused. Made by front.ts, one a model, for as long as the server lives.
//
// What is wished for is noted at once; one loop, #run, carries it out, step by step, until nothing is left to do. So no two
// of its steps overlap, and whoever comes in the middle of one finds the model as the step before left it. The one thing
// that happens beside the loop is what the supervisor does when the model's engine dies by itself.

import type { Ref } from "../../runtime/actor/ref.ts";
import { type ErrorRecord, fromErrorRecord, type ServerError } from "../../runtime/errors.ts";
import type { ModelStatus } from "../inference.ts";
import type { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelProtocol } from "../messages.ts";
import type { ModelOutcome } from "../model-management.ts";
import { Refusals } from "../refusals.ts";
import { loading, notLoaded, type ServedModel, shuttingDown } from "../served-model.ts";
import { LoadFailure } from "./load-failure.ts";
import { ModelUse } from "./model-use.ts";
import type { Residency, Resident } from "./residency.ts";
import { SupervisedModel, type SupervisedModelOptions } from "./supervised-model.ts";
import { checkTransition, firstStatus, type TransitionReason } from "./transitions.ts";
import { WaitingRoom } from "./waiting-room.ts";
import { type Departure, Wishes } from "./wishes.ts";

export interface ModelLifeOptions extends SupervisedModelOptions {
  /** start() will be called. */
  readonly loadsAtStart: boolean;
  readonly residency: Residency;
  /** Most requests that wait for it to be loaded; each does so for loadTimeoutMs. */
  readonly maxWaiting: number;
  readonly idleUnloadMs: number;
}

/** Time left to a place to keep what it has cached, once its requests are answered. */
const unloadDeadlineMs = 10_000;

export class ModelLife implements Resident {
  /** Unix seconds. */
  readonly createdAt = Math.floor(Date.now() / 1000);
  readonly model: SupervisedModel;
  readonly refusals: Refusals;
  readonly #options: ModelLifeOptions;
  readonly #use: ModelUse;
  readonly #room: WaitingRoom;
  readonly #wishes = new Wishes();
  #status: ModelStatus = firstStatus;
  /** Nobody asked for the loading under way but the server's start or a crash: requests are told to come again. */
  #comesByItself = false;
  /** Why it could not be loaded, or did not stay up, the last time. */
  #failure: LoadFailure | null = null;
  /** What the loop empties and stops the model for. */
  #departure: Departure | null = null;
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: ModelLifeOptions) {
    const { served, clock, log, residency } = options;
    this.#options = options;
    this.model = new SupervisedModel(options, {
      onUp: () => this.#up(),
      onCrash: () => this.#crashed(),
      onGivenUp: (error) => this.#givenUp(error),
    });
    this.refusals = new Refusals(served.id, log, clock);
    this.#use = new ModelUse({ clock, idleMs: options.idleUnloadMs, onIdle: () => this.#depart("idle") });
    this.#room = new WaitingRoom({
      modelId: served.id,
      maxWaiting: options.maxWaiting,
      timeoutMs: options.loadTimeoutMs,
      clock,
      onDeserted: () => !this.#isWanted && residency.giveUp(this),
    });
    if (!options.loadsAtStart) return;
    this.#comesByItself = true;
    this.#move("reloading", "start");
  }

  get id(): string {
    return this.#options.served.id;
  }

  get served(): ServedModel {
    return this.#options.served;
  }

  get adapters(): ModelAdapters | null {
    return this.#options.adapters;
  }

  get status(): ModelStatus {
    return this.#status;
  }

  /** As it is now; the error is why it could not be loaded. */
  get outcome(): ModelOutcome {
    const error = this.#status === "unloaded" ? (this.#failure?.record ?? null) : null;
    return { id: this.id, status: this.#status, error };
  }

  /** Loads it with the server. Rejects with why it cannot be; never settles where stop() comes first. */
  async start(): Promise<void> {
    const asked = this.#wishes.call("reload");
    this.#proceed();
    await asked;
    if (this.#isStopped) await new Promise(() => {});
    if (this.#failure !== null) throw this.#failure.error;
  }

  async reload(): Promise<ModelOutcome> {
    if (this.#isStopped) return { ...this.outcome, error: shuttingDown };
    if (this.#status === "reloading" || this.#wishes.has("reload"))
      return { id: this.id, status: "reloading", error: null };
    const asked = this.#wishes.call("reload");
    this.#proceed();
    return await asked;
  }

  /** One that is being loaded is loaded first, for the sake of the requests that wait for it. */
  async unload(): Promise<ModelOutcome> {
    if (this.#isStopped) return { ...this.outcome, error: shuttingDown };
    if (this.#status === "unloaded") return { ...this.outcome, error: null };
    const asked = this.#wishes.call("unload");
    this.#proceed();
    return await asked;
  }

  /**
   * A request comes. Settles when the model answers it, which it then does until leave(); loads it where it is not. Rejects
   * with why it cannot be answered.
   */
  async enter(signal: AbortSignal | null): Promise<void> {
    if (this.tryEnter()) return;
    const refusal = this.#refusal();
    if (refusal !== null) throw fromErrorRecord(refusal);
    const admission = this.#room.wait(signal);
    this.#proceed();
    await admission;
  }

  /** As enter(), where it can be at once. */
  tryEnter(): boolean {
    if (this.#status !== "loaded" || this.#departure !== null || this.#isStopped) return false;
    this.#use.begin();
    return true;
  }

  leave(): void {
    this.#use.end();
  }

  /** It stays loaded until the task is done. Throws model_state_conflict where it is not, or is about to leave. */
  async whileLoaded<T>(task: (model: Ref<ModelProtocol>) => Promise<T>): Promise<T> {
    if (!this.tryEnter()) throw fromErrorRecord(notLoaded(this.id));
    try {
      return await task(this.model.ref());
    } finally {
      this.leave();
    }
  }

  /** Ends it for good, and whatever is under way with it. */
  async stop(deadlineMs: number): Promise<void> {
    const { served, residency } = this.#options;
    this.#isStopped = true;
    if (served.spec.abortFlag) new Uint8Array(served.spec.abortFlag)[0] = 1;
    this.refusals.flush();
    this.#use.unwatch();
    this.#use.stopWaiting();
    this.#room.refuseAll(shuttingDown);
    residency.giveUp(this);
    await this.model.stop(deadlineMs);
    await this.#running;
    if (this.#status !== "unloaded") this.#move("unloaded", "stop");
    const outcome = { ...this.outcome, error: shuttingDown };
    this.#wishes.departed(outcome);
    this.#wishes.settle("reload", outcome);
  }

  get inFlight(): number {
    return this.#use.inFlight;
  }

  get lastUsedMs(): number {
    return this.#use.lastUsedMs;
  }

  get isEvictable(): boolean {
    return this.model.isAlive && !this.model.isStarting && !this.#releasesSeat;
  }

  get isLeaving(): boolean {
    const wish = this.#wishes.departure;
    return this.#releasesSeat || (wish !== null && wish !== "reload");
  }

  evict(): void {
    this.#depart("evict");
  }

  get #releasesSeat(): boolean {
    return this.#departure !== null && this.#departure !== "reload";
  }

  get #isWanted(): boolean {
    return this.#wishes.has("reload") || !this.#room.isEmpty;
  }

  #depart(reason: "evict" | "idle"): void {
    this.#wishes.flag(reason);
    this.#proceed();
  }

  #proceed(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const { departure } = this.#wishes;
      if (this.model.isAlive && departure !== null) await this.#unload(departure);
      else if (this.model.isAlive) break;
      else if (this.#isWanted) await this.#load();
      else break;
    }
    // In the same turn as the last look at the wishes: none can come in between.
    this.#isRunning = false;
  }

  async #load(): Promise<void> {
    const { residency } = this.#options;
    if (this.#status === "unloaded") this.#move("reloading", this.#wishes.has("reload") ? "reload" : "request");
    const isSeated = await residency.acquire(this);
    if (this.#isStopped) return;
    if (isSeated) await this.model.start();
    else this.#gone("unwanted");
    if (this.#isStopped) return;
    this.#wishes.settle("reload", this.outcome);
  }

  /** Lets the requests end that are on it, and stops it. Those that come meanwhile wait, and have it loaded again. */
  async #unload(reason: Departure): Promise<void> {
    const startMs = performance.now();
    this.#departure = reason;
    this.#use.unwatch();
    // One that is being started again has no requests, and must not come up on the way.
    if (this.#status === "loaded") await this.#use.drained();
    const drainMs = Math.round(performance.now() - startMs);
    if (this.#status === "loaded" && !this.#isStopped) await this.model.count();
    await this.model.stop(unloadDeadlineMs);
    const keepsSeat = !this.isLeaving && !this.#isStopped;
    this.#departure = null;
    this.#comesByItself = false;
    this.#failure = null;
    this.#move("unloaded", reason);
    const stopMs = Math.round(performance.now() - startMs) - drainMs;
    this.#options.log.info({ model: this.id, reason, drainMs, stopMs }, "model unloaded");
    this.#wishes.departed(this.outcome);
    if (!keepsSeat) this.#options.residency.release(this);
  }

  #up(): void {
    if (this.#departure !== null) return;
    this.#comesByItself = false;
    this.#failure = null;
    this.#move("loaded", "ready");
    this.#use.watch();
    this.#room.admitAll(() => this.#use.begin());
    this.#options.residency.review();
  }

  #crashed(): void {
    this.#use.unwatch();
    this.#use.stopWaiting();
    if (this.#departure !== null) return;
    this.#comesByItself = true;
    this.#move("reloading", "crash");
  }

  #givenUp(error: ServerError): void {
    const { clock, restart, residency } = this.#options;
    this.#use.unwatch();
    this.#use.stopWaiting();
    if (this.#departure !== null) return;
    this.#comesByItself = false;
    this.#failure = new LoadFailure({ modelId: this.id, error, clock, restMs: restart.maxBackoffMs });
    this.#gone("failed");
    this.#room.refuseAll(this.#failure.record);
    residency.release(this);
  }

  /** It is not in memory, though nothing of the kind was wished for; whoever did wish for it has what they want. */
  #gone(reason: TransitionReason): void {
    this.#move("unloaded", reason);
    this.#wishes.departed({ ...this.outcome, error: null });
  }

  /** Why a request is not even to wait; null where it may. */
  #refusal(): ErrorRecord | null {
    if (this.#isStopped) return shuttingDown;
    if (this.#comesByItself) return loading(this.id);
    const { status, error } = this.outcome;
    return status === "unloaded" && this.#failure?.isRecent ? error : null;
  }

  #move(to: ModelStatus, reason: TransitionReason): void {
    const from = this.#status;
    checkTransition(from, to, reason);
    this.#status = to;
    this.#options.log.debug({ model: this.id, from, to, reason }, "model status");
  }
}
