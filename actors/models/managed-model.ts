// ManagedModel: the lifecycle of one model. Every event changes the desired or the actual state and calls reconcile(), which
// takes the next step towards the desired state. Events: a request arrives or ends, a slot (ModelSlots: the permission to be in
// memory) is granted or revoked, the process is up or has ended, an operator's call, the idle timer. Requests reach the model only
// while its gate (RequestGate) is open. The table shows the step for each phase:
//
// | phase    | status              | a reason to load: a waiting  | a reason to unload: a call,     | neither           |
// |          |                     | request, reload as last call | eviction, idleness              |                   |
// | -------- | ------------------- | ---------------------------- | ------------------------------- | ----------------- |
// | out      | unloaded, reloading | get a slot, then: starting   | -                               | leave the queue   |
// | starting | reloading           | wait until up or given up    | for an unload call: stopping    | wait              |
// | running  | loaded, reloading   | -                            | close the gate, let requests    | keep the gate     |
// |          | (after a crash)     |                              | end, then: stopping             | open while up     |
// | stopping | loaded, reloading   | wait until ended, then: out  | wait until ended, then: out     | wait, then: out   |
//
// In the phase "running", a reason to unload takes precedence over a reason to load. After a crash, the process is restarted. If
// its supervisor gives up, the phase becomes "out", and requests are rejected for maxBackoffMs. In the phase "out", the model
// keeps its slot only during a reload.

import type { Ref } from "../../runtime/actor/ref.ts";
import { type ErrorRecord, fromErrorRecord, type ServerError } from "../../runtime/errors.ts";
import type { ModelStatus, Requantization } from "../api/inference.ts";
import type { ModelOutcome } from "../api/model-management.ts";
import type { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelProtocol } from "../messages.ts";
import { DesiredState } from "./desired-state.ts";
import { ModelProcess, type ModelProcessOptions } from "./model-process.ts";
import type { ModelSlots, SlotUser } from "./model-slots.ts";
import { RejectionCounter } from "./rejection-counter.ts";
import { type GateOptions, RequestGate } from "./request-gate.ts";
import { failed, loading, type ModelWeights, notLoaded, type ServedModel, shuttingDown } from "./served-model.ts";
import type { TransitionReason } from "./transitions.ts";

export interface ManagedModelOptions extends ModelProcessOptions, GateOptions {
  readonly served: ServedModel;
  readonly slots: ModelSlots;
}

type UnloadReason = "unload" | "evict" | "idle" | "reload";

type Phase = "out" | "starting" | "running" | "stopping";

/** Maximum time in ms for a process to save its prefix cache and stop, after its requests have ended. */
const unloadDeadlineMs = 10_000;

export class ManagedModel implements SlotUser {
  /** Creation time of the model's entry, in Unix seconds. */
  readonly createdAt = Math.floor(Date.now() / 1000);
  status: ModelStatus = "unloaded";
  /** Fraction of the latest load that is done, 0..1, as reported by the process. */
  loadFraction = 0;
  /** Latest change of the weights' quantization; null = not changed since the server started. */
  requantization: Requantization | null = null;
  readonly id: string;
  /** Manages adapters that are loaded at run time; null = the model does not support adapters. */
  readonly adapters: ModelAdapters | null;
  readonly model: ModelProcess;
  readonly refusals: RejectionCounter;
  /** Counts the requests. A request that was admitted must leave it when it has ended. */
  readonly gate: RequestGate;
  readonly #options: ManagedModelOptions;
  readonly #desired = new DesiredState();
  #phase: Phase = "out";
  #lastMove: TransitionReason | null = null;
  /** Error of the last failed load, and the time from which a new load may be tried; null = no failed load. */
  #failure: { readonly error: ServerError; readonly retryAtMs: number } | null = null;
  /** Reason of the stop in progress; null = no stop in progress. */
  #stopReason: UnloadReason | null = null;
  #stopping = Promise.resolve();
  #isClosed = false;
  /** Error for all requests while the model is being removed; null = the model is not being removed. */
  #retired: ErrorRecord | null = null;
  /** Weights of the next load; null = keep the current weights. */
  #next: ModelWeights | null = null;
  /** Weights to restore if the current ones cannot be loaded; null = the current ones have been loaded successfully. */
  #proven: ModelWeights | null = null;
  /** Error of the latest weights that could not be loaded; null = no error. */
  #weightsError: ServerError | null = null;

  constructor(options: ManagedModelOptions) {
    const { served, clock, log } = options;
    this.#options = options;
    this.id = served.id;
    this.adapters = options.adapters;
    this.model = new ModelProcess(options, { onUp: () => this.#up(), onDown: (error) => this.#down(error) });
    this.refusals = new RejectionCounter(served.id, log, clock);
    this.gate = new RequestGate(options, () => this.reconcile());
    if (options.loadsAtStart) this.#move("reloading", "start");
  }

  get served(): ServedModel {
    return this.model.served;
  }

  /** The current status, with the error of the last failed load. */
  get outcome(): ModelOutcome {
    return { id: this.id, status: this.status, error: this.#failureRecord };
  }

  get isEvictable(): boolean {
    return this.#phase === "running" || this.#phase === "stopping";
  }

  get isLeaving(): boolean {
    return this.#unloadReason !== null && this.#unloadReason !== "reload";
  }

  /** Loads the model when the server starts. Rejects with the error of a failed load. */
  async start(): Promise<void> {
    await this.#call("reload");
    if (this.#failure !== null) throw this.#failure.error;
  }

  async reload(): Promise<ModelOutcome> {
    if (this.#isClosed) return { ...this.outcome, error: shuttingDown };
    const isInProgress = this.status === "reloading" || this.#desired.has("reload");
    const isComing = this.status === "reloading" && this.#phase !== "out" && !this.isLeaving;
    const outcome = isComing ? this.outcome : this.#call("reload");
    return isInProgress ? { id: this.id, status: "reloading", error: null } : await outcome;
  }

  async unload(): Promise<ModelOutcome> {
    if (this.#isClosed) return { ...this.outcome, error: shuttingDown };
    if (this.status === "unloaded") return { ...this.outcome, error: null };
    return await this.#call("unload");
  }

  /** Rejects waiting and new requests with an error, and unloads the model after its requests have ended. */
  async retire(error: ErrorRecord): Promise<void> {
    this.#retired = error;
    this.gate.refuse(error);
    await this.unload();
  }

  /**
   * Loads the model with other weights. Running requests finish on the loaded model, new ones wait. If the model is not loaded,
   * the weights are used when a request next loads it. If the new weights cannot be loaded, the model returns to its previous
   * weights, and the error is thrown.
   */
  async replaceWeights(weights: ModelWeights): Promise<void> {
    this.#next = weights;
    this.#weightsError = null;
    while (this.#next === weights && !this.#isClosed) {
      if (this.#phase === "out" && this.status === "unloaded") return;
      const { error } = await this.#call("reload");
      if (error !== null) throw fromErrorRecord(error);
    }
    if (this.#weightsError !== null) throw this.#weightsError;
  }

  /**
   * Admits a client's request. Loads the model if necessary, and resolves when it is loaded. gate.leave() must be called when the
   * request has ended. Rejects with the error if the request cannot be served.
   */
  async enter(signal: AbortSignal | null, client: string): Promise<void> {
    if (this.gate.tryEnter()) return;
    const refusal = this.#refusal;
    if (refusal !== null) throw fromErrorRecord(refusal);
    const admission = this.gate.wait(signal, client);
    this.reconcile();
    await admission;
  }

  /** Runs a task on the model and keeps the model loaded during the task. Throws model_state_conflict if the model is not loaded. */
  async whileLoaded<T>(task: (model: Ref<ModelProtocol>) => Promise<T>): Promise<T> {
    if (!this.gate.tryEnter()) throw fromErrorRecord(notLoaded(this.id));
    try {
      return await task(this.model.ref());
    } finally {
      this.gate.leave();
    }
  }

  /** Stops the model permanently, in any phase. */
  async stop(deadlineMs: number): Promise<void> {
    const { abortFlag } = this.served.spec;
    this.#isClosed = true;
    if (abortFlag) new Uint8Array(abortFlag)[0] = 1;
    this.refusals.flush();
    this.gate.close();
    this.gate.refuse(shuttingDown);
    await this.model.stop(deadlineMs);
    await this.#stopping;
    if (this.status !== "unloaded") this.#move("unloaded", "stop");
    this.#options.slots.release(this);
    for (const call of ["reload", "unload"] as const)
      this.#desired.settle(call, { ...this.outcome, error: shuttingDown });
  }

  /** Takes the next step towards the desired state, if a step is needed. */
  reconcile(): void {
    if (this.#isClosed) return;
    const isWanted = this.#desired.isLoaded || this.gate.hasWaiting;
    const reason = this.#unloadReason;
    if (this.#phase === "out" && isWanted) this.#load();
    else if (this.#phase === "out" && this.status === "reloading")
      this.#unloaded(reason === "unload" ? reason : "unwanted");
    else if (this.#phase === "starting" && reason === "unload" && !isWanted) this.#stopping = this.#stop(reason);
    else if (this.#phase === "running" && reason !== null) this.#drain(reason);
    else if (this.#phase === "running" && this.model.isUp) this.gate.open();
  }

  /** Strongest reason to unload the model; null = no reason. A stop in progress keeps its reason unless a stronger one arises. */
  get #unloadReason(): UnloadReason | null {
    if (this.#desired.has("unload")) return "unload";
    if (this.#options.slots.isEvicted(this)) return "evict";
    if (this.#stopReason !== null) return this.#stopReason;
    if (this.#phase === "running" && this.gate.isIdle) return "idle";
    return this.#desired.has("reload") ? "reload" : null;
  }

  #call(call: "unload" | "reload"): Promise<ModelOutcome> {
    const outcome = this.#desired.call(call);
    this.reconcile();
    return outcome;
  }

  #load(): void {
    if (this.status === "unloaded") this.#move("reloading", this.#desired.has("reload") ? "reload" : "request");
    // A remote model uses no memory here. With a slot, it would keep local models out while its servers are down.
    if (this.served.engine !== "remote" && !this.#options.slots.acquire(this)) return;
    this.#phase = "starting";
    this.loadFraction = 0;
    if (this.#next !== null) this.#proven = this.#use(this.#next);
    this.#next = null;
    this.model.start();
  }

  /** Sets the weights for the next start. Returns the previous weights. */
  #use(weights: ModelWeights): ModelWeights {
    const { spec, level } = this.served;
    this.model.served = { ...this.served, ...weights };
    return { spec, level };
  }

  /** Stops the process after its requests have ended. */
  #drain(reason: UnloadReason): void {
    this.gate.close();
    if (this.gate.inFlight === 0 || !this.model.isUp) this.#stopping = this.#stop(reason);
  }

  async #stop(reason: UnloadReason): Promise<void> {
    const startMs = performance.now();
    const drainMs = this.status === "loaded" ? Math.round(startMs - this.gate.closedMs) : 0;
    this.#phase = "stopping";
    this.#stopReason = reason;
    if (this.status === "loaded") await this.model.count();
    await this.model.stop(unloadDeadlineMs);
    if (this.#isClosed) return;
    const finalReason = this.#unloadReason ?? reason;
    const fields = { model: this.id, reason: finalReason, drainMs, stopMs: Math.round(performance.now() - startMs) };
    this.#options.log.info(fields, "model unloaded");
    this.#unloaded(finalReason);
  }

  #unloaded(reason: TransitionReason): void {
    this.#phase = "out";
    this.#stopReason = null;
    this.#move("unloaded", reason);
    this.#desired.unloaded(this.outcome);
    if (reason !== "reload") this.#options.slots.release(this);
    this.reconcile();
  }

  #up(): void {
    if (this.#phase === "stopping") return;
    this.#phase = "running";
    this.#proven = null;
    this.#move("loaded", "ready");
    this.gate.open();
    this.#desired.loaded(this.outcome);
    this.#options.slots.review();
    this.reconcile();
  }

  /** Handles an unexpected end of the process. `error`: why the process is not restarted; null = it will be restarted. */
  #down(error: ServerError | null): void {
    const { clock, restart } = this.#options;
    this.gate.close();
    if (this.#phase === "stopping") return;
    if (this.#phase === "running" && this.#unloadReason !== null) this.reconcile();
    else if (error === null) this.#move("reloading", "crash");
    else if (this.#proven !== null) this.#returnTo(this.#proven, error);
    else {
      this.#failure = { error, retryAtMs: clock.now() + restart.maxBackoffMs };
      this.gate.refuse(this.#failureRecord ?? failed(this.id, error));
      this.#unloaded("failed");
    }
  }

  /** Loads the previous weights again after the new ones could not be loaded, because requests are waiting for the model. */
  #returnTo(weights: ModelWeights, error: ServerError): void {
    this.#options.log.error({ model: this.id, reason: error.message }, "the former weights are loaded again");
    this.#weightsError = error;
    this.#proven = null;
    this.#use(weights);
    this.model.start();
  }

  #move(to: ModelStatus, reason: TransitionReason): void {
    const from = this.status;
    this.status = to;
    this.#lastMove = reason;
    if (to === "reloading") this.#failure = null;
    this.#options.log.debug({ model: this.id, from, to, reason }, "model status");
  }

  get #failureRecord(): ErrorRecord | null {
    if (this.#failure === null) return null;
    const { error, retryAtMs } = this.#failure;
    const seconds = Math.ceil((retryAtMs - this.#options.clock.now()) / 1000);
    return { ...failed(this.id, error), retryAfterSeconds: Math.max(1, seconds) };
  }

  /** Error with which a new request is rejected immediately; null = the request may wait. */
  get #refusal(): ErrorRecord | null {
    if (this.#retired !== null) return this.#retired;
    if (this.#isClosed) return shuttingDown;
    // No client requested this load, so clients are asked to retry later instead of waiting.
    if (this.#lastMove === "start" || this.#lastMove === "crash") return loading(this.id);
    const isRecent = this.#failure !== null && this.#options.clock.now() < this.#failure.retryAtMs;
    return isRecent ? this.#failureRecord : null;
  }
}
