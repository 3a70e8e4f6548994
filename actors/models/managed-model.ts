// Owns the life of one model: whether it is in memory, what brings it there and takes it away, and which requests are on it,
// wait for it or are refused. Made by front.ts, one a model, for as long as the server lives.
//
// What is wished for is noted at once; one loop, #run, carries it out, step by step, until nothing is left to do. So no two
// of its steps overlap, and whoever comes in the middle of one finds the model as the step before left it. The one thing
// that happens beside the loop is what the supervisor does when the model's engine dies by itself.

import type { Ref } from "../../runtime/actor/ref.ts";
import { fromErrorRecord, type ServerError } from "../../runtime/errors.ts";
import type { ModelStatus } from "../api/inference.ts";
import type { ModelOutcome } from "../api/model-management.ts";
import type { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelProtocol } from "../messages.ts";
import { DesiredState, type UnloadReason } from "./desired-state.ts";
import { ModelProcess, type SupervisedModelOptions } from "./model-process.ts";
import type { ModelSlots, Resident } from "./model-slots.ts";
import { ModelState } from "./model-state.ts";
import { RejectionCounter } from "./rejection-counter.ts";
import { notLoaded, type ServedModel, shuttingDown } from "./served-model.ts";
import type { TransitionReason } from "./transitions.ts";
import { Visitors } from "./visitors.ts";

export interface ModelLifeOptions extends SupervisedModelOptions {
  /** start() will be called. */
  readonly loadsAtStart: boolean;
  readonly residency: ModelSlots;
  /** Most requests that wait for it to be loaded; each does so for loadTimeoutMs. */
  readonly maxWaiting: number;
  readonly idleUnloadMs: number;
}

/** Time left to a place to keep what it has cached, once its requests are answered. */
const unloadDeadlineMs = 10_000;

export class ManagedModel implements Resident {
  /** Unix seconds. */
  readonly createdAt = Math.floor(Date.now() / 1000);
  readonly id: string;
  readonly served: ServedModel;
  /** Its dynamic LoRA runtime; null where it has none. */
  readonly adapters: ModelAdapters | null;
  readonly model: ModelProcess;
  readonly refusals: RejectionCounter;
  readonly #options: ModelLifeOptions;
  readonly #standing: ModelState;
  readonly #visitors: Visitors;
  readonly #wishes = new DesiredState();
  /** What the loop is at that takes it out of memory: only while it is drained may it stay after all. */
  #leaving: "draining" | "stopping" | null = null;
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: ModelLifeOptions) {
    const { served, clock, log, restart } = options;
    this.#options = options;
    this.id = served.id;
    this.served = served;
    this.adapters = options.adapters;
    this.model = new ModelProcess(options, {
      onUp: () => this.#up(),
      onCrash: () => this.#crashed(),
      onGivenUp: (error) => this.#givenUp(error),
    });
    this.refusals = new RejectionCounter(served.id, log, clock);
    this.#standing = new ModelState({ modelId: served.id, clock, log, restMs: restart.maxBackoffMs });
    this.#visitors = new Visitors({
      modelId: served.id,
      clock,
      maxWaiting: options.maxWaiting,
      waitMs: options.loadTimeoutMs,
      idleMs: options.idleUnloadMs,
      onIdle: () => this.#depart("idle"),
      onDeserted: () => this.#stopUnwanted(),
    });
    if (options.loadsAtStart) this.#standing.move("reloading", "start");
  }

  get status(): ModelStatus {
    return this.#standing.status;
  }

  /** As it is now; the error is why it could not be loaded. */
  get outcome(): ModelOutcome {
    return this.#standing.outcome;
  }

  /** Loads it with the server. Rejects with why it cannot be; never settles where stop() comes first. */
  async start(): Promise<void> {
    const asked = this.#wishes.call("reload");
    this.#proceed();
    await asked;
    if (this.#isStopped) await new Promise(() => {});
    if (this.#standing.error !== null) throw this.#standing.error;
  }

  async reload(): Promise<ModelOutcome> {
    if (this.#isStopped) return { ...this.outcome, error: shuttingDown };
    const isUnderWay = this.status === "reloading" || this.#wishes.has("reload");
    // One that waits for room, or is leaving, comes up only if somebody still wishes it then.
    const isComing = this.status === "reloading" && this.model.isAlive && !this.isLeaving;
    const asked = isComing ? null : this.#wishes.call("reload");
    this.#proceed();
    return isUnderWay || asked === null ? { id: this.id, status: "reloading", error: null } : await asked;
  }

  /** One that is being loaded is loaded first where requests wait for it; where none does, that ends at once. */
  async unload(): Promise<ModelOutcome> {
    if (this.#isStopped) return { ...this.outcome, error: shuttingDown };
    if (this.status === "unloaded") return { ...this.outcome, error: null };
    const asked = this.#wishes.call("unload");
    this.#stopUnwanted();
    this.#proceed();
    return await asked;
  }

  /**
   * A request of a client comes. Settles when the model answers it, which it then does until leave(); loads it where it is not. Rejects
   * with why it cannot be answered.
   */
  async enter(signal: AbortSignal | null, client: string): Promise<void> {
    if (this.tryEnter()) return;
    const refusal = this.#isStopped ? shuttingDown : this.#standing.refusal;
    if (refusal !== null) throw fromErrorRecord(refusal);
    const admission = this.#visitors.wait(signal, client);
    this.#proceed();
    await admission;
  }

  /** As enter(), where it can be at once. */
  tryEnter(): boolean {
    return this.#visitors.tryEnter();
  }

  leave(): void {
    this.#visitors.leave();
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
    const { abortFlag } = this.served.spec;
    this.#isStopped = true;
    if (abortFlag) new Uint8Array(abortFlag)[0] = 1;
    this.refusals.flush();
    this.#visitors.abandon();
    this.#visitors.refuse(shuttingDown);
    this.#options.residency.giveUp(this);
    await this.model.stop(deadlineMs);
    await this.#running;
    if (this.status !== "unloaded") this.#standing.move("unloaded", "stop");
    this.#wishes.end({ ...this.outcome, error: shuttingDown });
  }

  get inFlight(): number {
    return this.#visitors.inFlight;
  }

  get lastUsedMs(): number {
    return this.#visitors.lastUsedMs;
  }

  get isEvictable(): boolean {
    return this.model.isAlive && !this.model.isStarting;
  }

  get isLeaving(): boolean {
    return this.#wishes.freesSeat;
  }

  evict(): void {
    this.#depart("evict");
  }

  stay(): void {
    if (this.#isStopped || this.#leaving === "stopping") return;
    this.#wishes.unflag("evict");
    if (this.#leaving === null || this.#wishes.departure !== null) return;
    this.#leaving = null;
    this.#visitors.open();
  }

  get #isWanted(): boolean {
    return this.#wishes.wantsLoaded || this.#visitors.areWaiting;
  }

  /** Takes back what was begun to load it, where nobody wants that any more. */
  #stopUnwanted(): void {
    if (this.#isWanted) return;
    this.#options.residency.giveUp(this);
    if (this.model.isStarting && this.#wishes.has("unload")) void this.model.stop(unloadDeadlineMs);
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
    if (this.status === "unloaded") this.#standing.move("reloading", this.#wishes.has("reload") ? "reload" : "request");
    const isSeated = await residency.acquire(this);
    if (this.#isStopped) return;
    if (isSeated) await this.model.start();
    if (this.#isStopped) return;
    // Neither up nor given up, nor started again after a crash: nobody wanted it any more.
    if (this.status === "reloading" && !this.model.isAlive)
      this.#gone(this.#wishes.has("unload") ? "unload" : "unwanted");
    else this.#wishes.loaded(this.outcome);
  }

  /** Lets the requests end that are on it, and stops it. Those that come meanwhile wait, and have it loaded again. */
  async #unload(wished: UnloadReason): Promise<void> {
    const startMs = performance.now();
    const isUp = this.status === "loaded";
    this.#visitors.close();
    // One that is being started again has no requests, and must not come up on the way.
    this.#leaving = isUp ? "draining" : "stopping";
    if (isUp) await this.#visitors.drained();
    if (!this.#isDeparting) return;
    this.#leaving = "stopping";
    const drainMs = Math.round(performance.now() - startMs);
    if (isUp && !this.#isStopped) await this.model.count();
    await this.model.stop(unloadDeadlineMs);
    // Something more pressing may have been wished for meanwhile.
    const reason = this.#wishes.departure ?? wished;
    const keepsSeat = !this.isLeaving && !this.#isStopped;
    this.#leaving = null;
    this.#standing.move("unloaded", reason);
    const stopMs = Math.round(performance.now() - startMs) - drainMs;
    this.#options.log.info({ model: this.id, reason, drainMs, stopMs }, "model unloaded");
    this.#wishes.departed(this.outcome);
    if (!keepsSeat) this.#options.residency.release(this);
  }

  get #isDeparting(): boolean {
    return this.#leaving !== null;
  }

  #up(): void {
    if (this.#isDeparting) return;
    this.#standing.move("loaded", "ready");
    this.#visitors.open();
    this.#options.residency.review();
  }

  #crashed(): void {
    if (this.#lost()) return;
    this.#standing.move("reloading", "crash");
  }

  #givenUp(error: ServerError): void {
    if (this.#lost()) return;
    this.#visitors.refuse(this.#standing.failed(error));
    this.#gone("failed");
  }

  /** Its engine has ended by itself; true where it was on its way out. */
  #lost(): boolean {
    this.#visitors.abandon();
    if (this.#leaving === null) return false;
    this.#leaving = "stopping";
    return true;
  }

  /** It is not in memory, though no #unload took it from there. */
  #gone(reason: TransitionReason): void {
    this.#standing.move("unloaded", reason);
    this.#wishes.departed(this.outcome);
    this.#options.residency.release(this);
  }
}
