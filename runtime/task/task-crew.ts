// TaskCrew: the workers of a task pool. Decides how many there are, what each loads, and when one is replaced. The pool gives
// them tasks and hears of the results. A slow worker runs slow tasks only; it was a quick worker until its first slow task.
import { ServerError } from "../errors.ts";
import { type EndReason, TaskEnded } from "./task.ts";
import { type Load, TaskWorker, type TaskWorkerHooks, type TaskWorkerOptions } from "./task-worker.ts";

/** A worker that does not start is tried again after this time, then after twice as long each time. */
const minStartDelayMs = 100;
const maxStartDelayMs = 30_000;
/** Workers that are not needed stay for so long. */
const surplusMs = 5000;
/** Failed starts in a row after which the waiting tasks are refused. */
const hopelessStarts = 3;

export interface TaskCrewOptions extends TaskWorkerOptions {
  /** A load that takes longer is slow: another worker stands in. */
  readonly quickMs: number;
  /** Most slow tasks at once, and most slow workers that wait for the next one. */
  readonly slowWorkers: number;
  /** Longest time to load a shared value: a worker that takes longer is ended, and the value is refused. */
  readonly loadLimitMs: number;
}

export interface TaskCrewHooks extends Pick<TaskWorkerHooks, "onFree" | "onResult" | "onFailure" | "onEnded"> {
  /** No worker starts: what waits for one is to be refused with this error. */
  onHopeless(error: ServerError): void;
  /** After that: a worker has started. */
  onHopeful(): void;
}

interface Shared {
  readonly value: unknown;
  /** What the first worker answered. */
  readonly first: Promise<unknown>;
  /** A worker has loaded it within `quickMs`. */
  isQuick: boolean;
  settle(value: unknown, error: Error | null): void;
}

export class TaskCrew {
  readonly #options: TaskCrewOptions;
  readonly #hooks: TaskCrewHooks;
  readonly #workerHooks: TaskWorkerHooks;
  readonly #workers = new Set<TaskWorker>();
  readonly #shared = new Map<string, Shared>();
  #wanted = 0;
  #wantedSlow = 0;
  #failedStarts = 0;
  #startTimer: NodeJS.Timeout | undefined;
  #surplusTimer: NodeJS.Timeout | undefined;

  constructor(options: TaskCrewOptions, hooks: TaskCrewHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#workerHooks = {
      ...hooks,
      onFree: (worker) => {
        if (this.#isHopeless && !worker.isSlow) hooks.onHopeful();
        if (!worker.isSlow) this.#failedStarts = 0;
        hooks.onFree(worker);
      },
      onShared: (worker, key, value) => this.#loaded(worker, key, value),
      onNotShared: (key, error) => this.#shared.get(key)?.settle(undefined, error),
      onEnded: (worker, reason, cause) => this.#end(worker, reason, cause),
    };
  }

  /** Quick workers that can be given a task. */
  get free(): readonly TaskWorker[] {
    return this.#kind(false).filter((worker) => worker.isFree);
  }

  /** Slow workers that can be given a task. */
  get freeSlow(): readonly TaskWorker[] {
    return this.#kind(true).filter((worker) => worker.isFree);
  }

  /** Slow workers that have a task or can be given one. */
  get slowWorkerCount(): number {
    return this.#kind(true).filter(({ load }) => load === null).length;
  }

  /** Quick workers that can be given a task and have loaded something, where there is something to load. */
  get freeCount(): number {
    return this.free.filter((worker) => this.#serves(worker)).length;
  }

  /** Quick workers, free or not, that have loaded something, where there is something to load. */
  get servingCount(): number {
    return this.#kind(false).filter((worker) => this.#serves(worker)).length;
  }

  /** See TaskPool.share. The caller calls `keep` next. */
  share(key: string, value: unknown): Promise<unknown> {
    this.unshare(key);
    const shared = sharedValue(value);
    this.#shared.set(key, shared);
    return shared.first;
  }

  unshare(key: string): void {
    const shared = this.#shared.get(key);
    if (shared === undefined) return;
    this.#shared.delete(key);
    shared.settle(undefined, new ServerError("cancelled", `"${key}" is not shared any more`));
    for (const worker of this.#workers) worker.unshare(key);
  }

  /** Whether there is a quick worker that has what is shared under a key, or will have it; slow ones follow. */
  mayHave(key: string): boolean {
    return this.#shared.has(key) && this.#kind(false).some((worker) => !worker.refusedKeys.has(key));
  }

  /** A quick worker is being started, or loads a shared value: there will be another free one. */
  get isChanging(): boolean {
    return this.#kind(false).some(({ isReady, load }) => !isReady || load !== null);
  }

  /**
   * Keeps `wanted` quick workers and a stand-in for each one whose load is slow. Adds a quick worker for each of `wantedSlow`
   * slow ones that is missing: its first slow task makes it one. Surplus workers stay for some time, as they may be needed again.
   */
  keep(wanted: number, wantedSlow: number): void {
    this.#wanted = wanted;
    this.#wantedSlow = wantedSlow;
    for (const worker of this.free) if (worker.isFull && this.#readyCount > 1) this.drop(worker);
    // What a slow worker refuses, a quick one has: the next slow worker will have it, too.
    for (const worker of this.freeSlow) if (worker.isFull || worker.refusedKeys.size > 0) this.drop(worker);
    this.#dropIdle(this.freeSlow, this.#kind(true).length - Math.max(wantedSlow, this.#options.slowWorkers));
    while (this.#startTimer === undefined && this.#surplus < 0) this.#start();
    this.#load();
    if (this.#surplus <= 0 && this.#surplusSlow <= 0) this.#clearSurplusTimer();
    else this.#surplusTimer ??= setTimeout(() => this.#dropSurplus(), surplusMs).unref();
  }

  #kind(isSlow: boolean): readonly TaskWorker[] {
    return [...this.#workers].filter((worker) => worker.isSlow === isSlow);
  }

  /** Quick workers beyond those that are needed. */
  get #surplus(): number {
    const workers = this.#kind(false);
    const standIns = workers.filter(({ load }) => load?.hasStandIn).length;
    return workers.length - this.#wanted - standIns - Math.max(0, -this.#surplusSlow);
  }

  get #surplusSlow(): number {
    return this.#kind(true).length - this.#wantedSlow;
  }

  #dropSurplus(): void {
    this.#clearSurplusTimer();
    this.#dropIdle(this.freeSlow, this.#surplusSlow);
    const idle = this.#kind(false).filter(({ isFree, isReady }) => isFree || !isReady);
    this.#dropIdle(idle, this.#surplus);
    this.keep(this.#wanted, this.#wantedSlow);
  }

  /** Ends up to `count` workers, those with the fewest shared values first. */
  #dropIdle(idle: readonly TaskWorker[], count: number): void {
    const sorted = [...idle].sort((a, b) => a.keys.size - b.keys.size);
    for (const worker of sorted.slice(0, Math.max(0, count))) this.drop(worker);
  }

  #clearSurplusTimer(): void {
    clearTimeout(this.#surplusTimer);
    this.#surplusTimer = undefined;
  }

  #start(): void {
    try {
      this.#workers.add(new TaskWorker(this.#options, this.#workerHooks));
    } catch (error) {
      // The system makes no more threads.
      this.#notStarted(error);
    }
  }

  /** Ends a worker, whatever it is at. */
  drop(worker: TaskWorker): void {
    this.#workers.delete(worker);
    worker.end();
  }

  close(reason: ServerError): void {
    clearTimeout(this.#startTimer);
    this.#clearSurplusTimer();
    for (const worker of this.#workers) this.drop(worker);
    for (const { settle } of this.#shared.values()) settle(undefined, reason);
  }

  /**
   * Has free workers load the shared values they lack. A worker that has some waits until another one that has some is free
   * for tasks. A value that no worker has loaded quickly yet is loaded by one quick worker at a time. A slow worker loads a
   * value only when a quick worker has it.
   */
  #load(): void {
    for (const worker of this.freeSlow) {
      const isLoaded = (key: string) => this.#kind(false).some(({ keys }) => keys.has(key));
      const missing = [...this.#shared].find(([key]) => !worker.knows(key) && isLoaded(key));
      if (missing !== undefined) this.#loadInto(worker, ...missing);
    }
    for (const worker of this.free) {
      const missing = [...this.#shared].find(([key, { isQuick }]) => {
        return !worker.knows(key) && (isQuick || !this.#kind(false).some(({ load }) => load?.key === key));
      });
      if (missing === undefined) continue;
      const isAlone = this.#kind(false).length === 1;
      const hasStandIn = this.free.some((other) => other !== worker && other.keys.size > 0);
      if (worker.keys.size === 0 || hasStandIn || isAlone) this.#loadInto(worker, ...missing);
    }
  }

  #loadInto(worker: TaskWorker, key: string, { value }: Shared): void {
    const { quickMs, loadLimitMs } = this.#options;
    const load = worker.share(key, value);
    const isAtIt = () => worker.load === load && this.#workers.has(worker);
    setTimeout(() => isAtIt() && this.#standIn(worker, load), quickMs).unref();
    setTimeout(() => isAtIt() && this.#end(worker, "time", undefined), loadLimitMs).unref();
  }

  #standIn(worker: TaskWorker, load: Load): void {
    // One that has just started has served nobody.
    if (worker.keys.size === 0 || worker.isSlow) return;
    load.hasStandIn = true;
    this.keep(this.#wanted, this.#wantedSlow);
  }

  #serves(worker: TaskWorker): boolean {
    return worker.isReady && (worker.keys.size > 0 || this.#shared.size === worker.refusedKeys.size);
  }

  #loaded(worker: TaskWorker, key: string, value: unknown): void {
    const shared = this.#shared.get(key);
    // It was taken back while the worker loaded it.
    if (shared === undefined) worker.unshare(key);
    else {
      shared.isQuick ||= worker.load !== null && performance.now() - worker.load.startedMs < this.#options.quickMs;
      shared.settle(value, null);
    }
  }

  #end(worker: TaskWorker, reason: EndReason, cause: unknown): void {
    const { load } = worker;
    this.drop(worker);
    if (!worker.isReady) this.#notStarted(cause);
    // Rejects TaskPool.share(), which drops the value: no other worker loads what has ended this one.
    if (load !== null) this.#shared.get(load.key)?.settle(undefined, new TaskEnded(reason, "", cause));
    this.#hooks.onEnded(worker, reason, cause);
  }

  #notStarted(cause: unknown): void {
    this.#failedStarts++;
    // The system may have no more threads.
    for (const slow of this.freeSlow) this.drop(slow);
    process.stderr.write(`a worker of "${this.#options.name}" did not start: ${String(cause)}\n`);
    const delayMs = Math.min(minStartDelayMs * 2 ** (this.#failedStarts - 1), maxStartDelayMs);
    clearTimeout(this.#startTimer);
    this.#startTimer = setTimeout(() => {
      this.#startTimer = undefined;
      this.keep(this.#wanted, this.#wantedSlow);
    }, delayMs);
    if (!this.#isHopeless || this.#readyCount > 0) return;
    const error = new ServerError("peer_gone", "the threads that read requests do not start; try again shortly");
    for (const { settle } of this.#shared.values()) settle(undefined, error);
    this.#hooks.onHopeless(error);
  }

  get #isHopeless(): boolean {
    return this.#failedStarts >= hopelessStarts;
  }

  get #readyCount(): number {
    return this.#kind(false).filter((worker) => worker.isReady).length;
  }
}

function sharedValue(value: unknown): Shared {
  let settle: Shared["settle"] = () => {};
  const first = new Promise<unknown>((resolve, reject) => {
    settle = (answer, error) => (error === null ? resolve(answer) : reject(error));
  });
  first.catch(() => {});
  return { value, first, isQuick: false, settle };
}
