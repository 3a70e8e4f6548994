// Task crew: the workers of a task pool. Decides how many workers there are, which shared values (see TaskPool.share) each
// worker loads, and when a worker is replaced. The pool sends tasks to the workers and receives the results. A quick worker
// permanently becomes a slow worker with its first slow task.
import { type Deferred, deferred } from "../deferred.ts";
import { ServerError } from "../errors.ts";
import { type EndReason, TaskEnded } from "./task.ts";
import { type Load, TaskWorker, type TaskWorkerHooks, type TaskWorkerOptions } from "./task-worker.ts";
import { clockFactors } from "./work-time.ts";

/** Wait in ms before the next attempt to start a worker. It doubles after each failure, up to the maximum. */
const minStartDelayMs = 100;
const maxStartDelayMs = 30_000;
/** Time in ms after which surplus workers end. */
const surplusMs = 5000;
/** Number of failed starts in a row after which the waiting tasks are rejected. */
const hopelessStarts = 3;

export interface TaskCrewOptions extends TaskWorkerOptions {
  /**
   * Time in ms after which the loading of a shared value counts as slow. Another worker then replaces the loading
   * worker until the value is loaded.
   */
  readonly quickMs: number;
  /** Maximum number of slow tasks at once, and of idle slow workers. */
  readonly slowWorkers: number;
  /**
   * Maximum processor time in ms to load a shared value; the maximum wall-clock time is six times as long. After it, the worker is ended and
   * the value is rejected.
   */
  readonly loadLimitMs: number;
}

export interface TaskCrewHooks extends Pick<TaskWorkerHooks, "onFree" | "onResult" | "onFailure" | "onEnded"> {
  /** Called when no worker can be started. The waiting tasks must be rejected with this error. */
  onHopeless(error: ServerError): void;
  /** Called when a worker has started after onHopeless. */
  onHopeful(): void;
}

/** A shared value, with the promise of the result of the first worker that loads it. */
interface Shared extends Deferred<unknown> {
  readonly value: unknown;
  /** True if a worker has loaded the value within `quickMs`. */
  isQuick: boolean;
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
      onNotShared: (key, error) => this.#shared.get(key)?.reject(error),
      onEnded: (worker, reason, cause) => this.#end(worker, reason, cause),
    };
  }

  /** Idle workers for quick tasks. */
  get free(): readonly TaskWorker[] {
    return this.#kind(false).filter((worker) => worker.isFree);
  }

  /** Slow workers that can take a task. */
  get freeSlow(): readonly TaskWorker[] {
    return this.#kind(true).filter((worker) => worker.isFree);
  }

  /** Number of slow workers that run a task or can take one. */
  get slowWorkerCount(): number {
    return this.#kind(true).filter(({ load }) => load === null).length;
  }

  /**
   * Number of quick workers that can take a task. If there are shared values, counts only workers
   * that have loaded at least one.
   */
  get freeCount(): number {
    return this.free.filter((worker) => this.#serves(worker)).length;
  }

  /** Number of quick workers, free or not. If there are shared values, counts only workers that have loaded at least one. */
  get servingCount(): number {
    return this.#kind(false).filter((worker) => this.#serves(worker)).length;
  }

  /** Shares a value; see TaskPool.share. The caller must call `keep` afterwards. */
  share(key: string, value: unknown): Promise<unknown> {
    this.unshare(key);
    const first = deferred<unknown>();
    first.promise.catch(() => {});
    this.#shared.set(key, { ...first, value, isQuick: false });
    return first.promise;
  }

  unshare(key: string): void {
    const shared = this.#shared.get(key);
    if (shared === undefined) return;
    this.#shared.delete(key);
    shared.reject(new ServerError("cancelled", `"${key}" is no longer shared`));
    for (const worker of this.#workers) worker.unshare(key);
  }

  /** Returns whether a quick worker has the shared value of a key, or will load it. Slow workers load it later. */
  mayHave(key: string): boolean {
    return this.#shared.has(key) && this.#kind(false).some((worker) => !worker.refusedKeys.has(key));
  }

  /** True if a quick worker is starting or loading a shared value, so that one more worker will be free soon. */
  get isChanging(): boolean {
    return this.#kind(false).some(({ isReady, load }) => !isReady || load !== null);
  }

  /**
   * Starts workers until there are `wanted` quick workers, and one more for each quick worker that is loading slowly. If there
   * are fewer than `wantedSlow` slow workers, also starts one quick worker for each missing slow worker. The new worker becomes
   * slow with its first slow task. Surplus workers are ended after a delay, because they may be needed again.
   */
  keep(wanted: number, wantedSlow: number): void {
    this.#wanted = wanted;
    this.#wantedSlow = wantedSlow;
    // Replace free quick workers with a full heap or a module that failed to load. The last ready worker stays until another one
    // is ready, because it can still do most tasks.
    for (const worker of this.free) {
      if ((worker.isFull || worker.isBroken) && this.#readyCount > 1) this.drop(worker);
    }
    // Replace slow workers that are full or lack a value, because a slow worker must have every value that quick workers have.
    for (const worker of this.freeSlow)
      if (worker.isFull || worker.isBroken || worker.refusedKeys.size > 0) this.drop(worker);
    this.#dropIdle(this.freeSlow, this.#kind(true).length - Math.max(wantedSlow, this.#options.slowWorkers));
    while (this.#startTimer === undefined && this.#surplus < 0) this.#start();
    this.#load();
    if (this.#surplus <= 0 && this.#surplusSlow <= 0) this.#clearSurplusTimer();
    else this.#surplusTimer ??= setTimeout(() => this.#dropSurplus(), surplusMs).unref();
  }

  #kind(isSlow: boolean): readonly TaskWorker[] {
    return [...this.#workers].filter((worker) => worker.isSlow === isSlow);
  }

  /** Number of quick workers that are not needed. A negative value is the number of missing workers. */
  get #surplus(): number {
    const workers = this.#kind(false);
    // Stand-ins are not surplus: workers that replace a worker while it loads slowly, or that replace a broken worker.
    const standIns = workers.filter(({ load, isBroken }) => load?.hasStandIn || isBroken).length;
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

  /** Ends up to `count` idle workers. The workers with the fewest shared values are ended first. */
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
      // The start fails if the operating system does not allow more threads.
      this.#notStarted(error);
    }
  }

  /** Ends a worker immediately. */
  drop(worker: TaskWorker): void {
    this.#workers.delete(worker);
    void worker.end();
  }

  /** Ends all workers. Resolves when no worker is still loading modules. */
  async close(reason: ServerError): Promise<void> {
    clearTimeout(this.#startTimer);
    this.#clearSurplusTimer();
    const ends = [...this.#workers].map((worker) => worker.end());
    this.#workers.clear();
    for (const { reject } of this.#shared.values()) reject(reason);
    await Promise.all(ends);
  }

  /**
   * Makes free workers load missing shared values. A worker that already has values loads more only when another worker with
   * values is free for tasks. Until a worker has loaded a value within `quickMs`, only one quick worker at a time loads it. A
   * slow worker loads a value only when a quick worker has the value.
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
    const isLoading = () => worker.load === load && this.#workers.has(worker);
    setTimeout(() => isLoading() && this.#standIn(worker, load), quickMs).unref();
    load.time.limit(loadLimitMs, clockFactors.load, () => isLoading() && this.#end(worker, "time", undefined));
  }

  #standIn(worker: TaskWorker, load: Load): void {
    // A new worker has not run a task yet, so it needs no replacement while it loads.
    if (worker.keys.size === 0 || worker.isSlow) return;
    load.hasStandIn = true;
    this.keep(this.#wanted, this.#wantedSlow);
  }

  #serves(worker: TaskWorker): boolean {
    return worker.isReady && (worker.keys.size > 0 || this.#shared.size === worker.refusedKeys.size);
  }

  #loaded(worker: TaskWorker, key: string, value: unknown): void {
    const shared = this.#shared.get(key);
    // The value was removed while the worker was loading it.
    if (shared === undefined) worker.unshare(key);
    else {
      shared.isQuick ||= worker.load !== null && worker.load.time.clockMs < this.#options.quickMs;
      shared.resolve(value);
    }
  }

  #end(worker: TaskWorker, reason: EndReason, cause: unknown): void {
    const { load } = worker;
    this.drop(worker);
    if (!worker.isReady) this.#notStarted(cause);
    // Makes TaskPool.share() reject and drop the value, so that no other worker loads the value that ended this worker.
    if (load !== null) this.#shared.get(load.key)?.reject(new TaskEnded(reason, "", cause));
    this.#hooks.onEnded(worker, reason, cause);
  }

  #notStarted(cause: unknown): void {
    this.#failedStarts++;
    // End free slow workers, because the system may not allow more threads.
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
    for (const { reject } of this.#shared.values()) reject(error);
    this.#hooks.onHopeless(error);
  }

  get #isHopeless(): boolean {
    return this.#failedStarts >= hopelessStarts;
  }

  get #readyCount(): number {
    return this.#kind(false).filter((worker) => worker.isReady).length;
  }
}
