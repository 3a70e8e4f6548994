// Task pool: worker threads, each of which runs one task at a time. Clients take turns. A task is quick until it has run for
// `quickMs`. Then its worker permanently becomes a slow worker, and a spare worker replaces it. So a task delays other clients
// by at most `quickMs`. At `limitMs`, or at the heap limit, a task is ended together with its thread. A task with a large input
// starts in the slow lane.
//
// There are `quickWorkers` quick workers, one spare worker (two while there are slow tasks) and at most `slowWorkers` slow
// workers. After a slow task, the client's next tasks wait in the slow lane for a while. A client is trusted if all its tasks
// have been short. A trusted client may use a spare worker instead of waiting for others. Clients share the limit on waiting
// tasks.

import type { Transferable } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import { ClientPaces } from "../queues/client-paces.ts";
import { type EndReason, TaskEnded } from "./task.ts";
import { TaskCrew, type TaskCrewOptions } from "./task-crew.ts";
import { TaskLanes, type TaskLanesOptions } from "./task-lanes.ts";
import type { TaskWorker } from "./task-worker.ts";
import { clockFactors, WorkTime } from "./work-time.ts";

/** Maximum input size in bytes of a task that starts in the queue of quick tasks. Larger ones start in the slow queue. */
const maxQuickBytes = 8 * 2 ** 20;
/**
 * A slow task whose input was transferred cannot be restarted later. It may continue while fewer slow tasks than this number run,
 * even if `slowWorkers` is lower; otherwise it is rejected.
 */
const maxSlow = 2;

export interface TaskPoolOptions extends TaskCrewOptions, TaskLanesOptions {
  /** Maximum number of quick tasks at once. */
  readonly quickWorkers: number;
  /** Maximum processor time of one task in ms. The maximum wall-clock time is twice as long. */
  readonly limitMs: number;
  /** Called with true when workers can no longer be started, and with false when a worker starts again. */
  readonly onDown?: (isDown: boolean) => void;
}

export interface TaskPoolStatistics {
  /** Number of tasks that are waiting now. */
  readonly waiting: number;
  /** Number of tasks that have become slow since the start. */
  readonly slow: number;
}

export interface TaskRequest {
  readonly kind: string;
  readonly input: unknown;
  /** The client for which the task runs. Clients take turns. */
  readonly client: string;
  /** Key of the shared value that the task needs. */
  readonly needs?: string;
  /** Limit of processor time in ms; default: the limit of the pool. */
  readonly limitMs?: number;
  /** Whether the task reads a model, so that its wall-clock limit is that of loading a shared value. */
  readonly isLoad?: boolean;
  /** Buffers that are transferred with the input. Such a task cannot be restarted. */
  readonly transfer?: readonly Transferable[];
  /** Cancels the task, which then rejects with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}

interface Task extends TaskRequest {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  /** The worker that runs the task; null while it does not run. */
  worker: TaskWorker | null;
  /** Time that the task has taken on its worker; null before it has begun. */
  time: WorkTime | null;
  isGivenUp: boolean;
}

export class TaskPool {
  readonly #options: TaskPoolOptions;
  readonly #crew: TaskCrew;
  readonly #lanes: TaskLanes<Task>;
  readonly #running = new Map<TaskWorker, Task>();
  readonly #paces: ClientPaces;
  #slowEver = 0;
  #isClosed = false;

  constructor(options: TaskPoolOptions) {
    this.#options = options;
    this.#lanes = new TaskLanes(options);
    this.#paces = new ClientPaces(options.quickMs);
    this.#crew = new TaskCrew(options, {
      onFree: () => this.#dispatch(),
      onResult: (worker, value) => this.#done(worker)?.resolve(value),
      onFailure: (worker, error) => this.#done(worker)?.reject(error),
      onEnded: (worker, reason, cause) => this.#lost(worker, reason, cause),
      onHopeless: (error) => {
        this.#lanes.refuseAll(error);
        options.onDown?.(true);
      },
      onHopeful: () => options.onDown?.(false),
    });
    this.#dispatch();
  }

  /**
   * Loads a value under a key into every worker, including workers that start later. Resolves with the result of the first
   * worker. If a worker cannot load the value, rejects with its ServerError or with TaskEnded, and drops the value.
   */
  async share(key: string, value: unknown): Promise<unknown> {
    const first = this.#crew.share(key, value);
    this.#dispatch();
    try {
      return await first;
    } catch (error) {
      this.unshare(key);
      throw error;
    }
  }

  unshare(key: string): void {
    this.#crew.unshare(key);
    this.#dispatch();
  }

  /**
   * Runs a task. Rejects with the ServerError that the task threw, with TaskEnded if it was ended, or with `queue_full`,
   * `cancelled`, `peer_gone` or `draining`.
   */
  run(request: TaskRequest): Promise<unknown> {
    const { client, signal } = request;
    let giveUp = () => {};
    const ended = new Promise((resolve, reject) => {
      const task: Task = {
        ...request,
        resolve,
        reject,
        worker: null,
        time: null,
        isGivenUp: false,
      };
      giveUp = () => this.#giveUp(task);
      const refusal = this.#refusalOf(task);
      if (refusal !== null) {
        reject(refusal);
        return;
      }
      signal?.addEventListener("abort", giveUp);
      this.#lanes.makeRoomFor(client);
      this.#lanes.add(task, this.#paces.isSlow(client) || isLarge(request));
      this.#dispatch();
    });
    return ended.finally(() => signal?.removeEventListener("abort", giveUp));
  }

  get statistics(): TaskPoolStatistics {
    return { waiting: this.#lanes.size, slow: this.#slowEver };
  }

  /**
   * Ends all workers. Running and waiting tasks reject with `draining` at once. Resolves when no worker is still loading
   * modules, because terminating a worker that loads modules may abort the process.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const closed = this.#crew.close(draining());
    for (const worker of [...this.#running.keys()]) this.#ended(worker)?.reject(draining());
    this.#lanes.refuseAll(draining());
    await closed;
  }

  #refusalOf({ client, signal }: Task): ServerError | null {
    if (signal?.aborted) return cancelled();
    if (this.#isClosed) return draining();
    return this.#lanes.refusalFor(client);
  }

  /** Starts missing workers, then waiting tasks. */
  #dispatch(): void {
    if (this.#isClosed) return;
    const { quickWorkers, slowWorkers } = this.#options;
    const slowWanted = Math.max(this.#slowCount, Math.min(slowWorkers, this.#slowCount + this.#lanes.slowSize));
    this.#crew.keep(quickWorkers + this.#spareWorkers, slowWanted);
    while (this.#startNext(this.#nextQuick(), this.#crew.free, false));
    while (this.#slowCount < slowWorkers && this.#startNextSlow());
  }

  /**
   * Number of spare workers. It is two while there are slow tasks, because a trusted client may occupy one
   * spare worker with a slow task.
   */
  get #spareWorkers(): number {
    return this.#slowCount + this.#lanes.slowSize > 0 ? 2 : 1;
  }

  #startNextSlow(): boolean {
    const workers = this.#workersForSlow;
    return workers.length > 0 && this.#startNext(this.#lanes.takeSlow(), workers, true);
  }

  /**
   * Workers that may take a slow task. These are the free slow workers and, while slow workers are missing, free quick workers.
   * The last free quick worker is included only if there are more than `quickWorkers + 1` quick workers.
   */
  get #workersForSlow(): readonly TaskWorker[] {
    const { free, freeSlow, freeCount, servingCount, slowWorkerCount } = this.#crew;
    const { quickWorkers, slowWorkers } = this.#options;
    const canSpare = freeCount > 1 || (freeCount === 1 && servingCount > quickWorkers + 1);
    return canSpare && slowWorkerCount < slowWorkers ? [...freeSlow, ...free] : freeSlow;
  }

  /** Takes the next task from the queue of quick tasks; undefined if none may start now. */
  #nextQuick(): Task | undefined {
    const { free, freeCount, isChanging } = this.#crew;
    const isRoom = this.#running.size - this.#slowCount < this.#options.quickWorkers;
    if (free.length === 0) return undefined;
    const isReserved = freeCount <= this.#spareWorkers && isChanging && this.#paces.hasTrusted;
    if (isRoom && !isReserved) return this.#lanes.takeQuick();
    // While workers are starting or loading, only a client that has been trusted for long gets the last free worker, because a
    // client that has become trusted recently may send slow tasks.
    const isLast = freeCount <= 1 && isChanging;
    return isRoom || this.#runsStranger ? this.#lanes.takeTrusted(this.#paces, isLast) : undefined;
  }

  get #runsStranger(): boolean {
    for (const [{ isSlow }, { client }] of this.#running) if (!isSlow && !this.#paces.isTrusted(client)) return true;
    return false;
  }

  /**
   * Starts a task that was taken from a queue. Returns false if there is no task, or if the task has to wait for a worker that
   * has loaded the shared value that the task needs.
   */
  #startNext(task: Task | undefined, workers: readonly TaskWorker[], isSlow: boolean): boolean {
    if (task === undefined) return false;
    const { needs } = task;
    const worker = workers.find((one) => needs === undefined || one.keys.has(needs));
    if (worker !== undefined) {
      this.#start(task, worker, isSlow);
      return true;
    }
    if (this.#crew.mayHave(needs as string)) {
      this.#lanes.putBack(task, isSlow);
      return false;
    }
    task.reject(new ServerError("peer_gone", `"${needs}" cannot be used now; try again shortly`));
    return true;
  }

  #start(task: Task, worker: TaskWorker, isSlow: boolean): void {
    const { quickMs } = this.#options;
    const { kind, input, transfer = [] } = task;
    const time = new WorkTime(worker);
    task.worker = worker;
    task.time = time;
    if (isSlow) worker.slowDown();
    this.#running.set(worker, task);
    if (isSlow) this.#limit(task, time, worker);
    else time.after(quickMs, () => this.#turnSlow(task, time, worker));
    worker.run(kind, input, transfer);
  }

  #limit({ limitMs = this.#options.limitMs, isLoad = false }: Task, time: WorkTime, worker: TaskWorker): void {
    time.limit(limitMs, isLoad ? clockFactors.load : clockFactors.task, () => this.#kill(worker, "time"));
  }

  /**
   * Called when a quick task has run for `quickMs` of wall-clock time. The task becomes slow, and its client counts as slow. If the
   * maximum number of slow tasks is already running, one slow task of a client that has several is stopped, unless this client has
   * slow tasks itself; otherwise this task is stopped. A stopped task waits to be run again, or is rejected if its input was
   * transferred. Processor time is not used here: on a busy machine it grows slowly, so the client would count as slow too late.
   */
  #turnSlow(task: Task, time: WorkTime, worker: TaskWorker): void {
    const { slowWorkers } = this.#options;
    const most = task.transfer === undefined ? slowWorkers : Math.max(slowWorkers, maxSlow);
    this.#slowEver++;
    this.#setSlow(task.client);
    const giver = this.#slowCount < most || task.isGivenUp ? null : this.#slowGiver(task.client);
    if (giver !== null) this.#putOff(giver);
    if (!task.isGivenUp && this.#slowCount < most) {
      worker.slowDown();
      this.#limit(task, time, worker);
    } else {
      this.#putOff(worker);
    }
    this.#dispatch();
  }

  /** Called when a client has had a slow task. Moves the client's waiting tasks to the queue of slow tasks. */
  #setSlow(client: string): void {
    this.#paces.slow(client);
    this.#lanes.moveToSlow(client);
  }

  /**
   * Ends the worker of a task. The task waits in the queue of slow tasks to be started again. If its input was
   * transferred, it is rejected instead.
   */
  #putOff(worker: TaskWorker): void {
    const task = this.#ended(worker);
    this.#crew.drop(worker);
    if (task === undefined) return;
    if (task.transfer === undefined && !task.isGivenUp) this.#lanes.add(task, true);
    else task.reject(tooManySlow());
  }

  /**
   * Returns the worker of the latest slow task of a client that has several. Returns null if there is none, or if
   * `client` has a slow task itself.
   */
  #slowGiver(client: string): TaskWorker | null {
    const counts = new Map<string, number>();
    let giver: TaskWorker | null = null;
    for (const [worker, task] of this.#running) {
      if (!worker.isSlow) continue;
      if (task.client === client) return null;
      const count = (counts.get(task.client) ?? 0) + 1;
      counts.set(task.client, count);
      if (count > 1) giver = worker;
    }
    return giver;
  }

  /** Called when a worker has finished its task, with a result or an error. */
  #done(worker: TaskWorker): Task | undefined {
    const task = this.#ended(worker);
    if (task?.time && !worker.isSlow) this.#paces.quick(task.client, task.time.usedMs);
    return task;
  }

  /** Ends a running task together with its worker. */
  #kill(worker: TaskWorker, reason: EndReason): void {
    this.#crew.drop(worker);
    this.#lost(worker, reason, undefined);
  }

  /** Called when a worker has ended together with its task. */
  #lost(worker: TaskWorker, reason: EndReason, cause: unknown): void {
    const task = this.#ended(worker);
    if (task !== undefined) {
      this.#setSlow(task.client);
      task.reject(new TaskEnded(reason, worker.phase, cause));
    }
    this.#dispatch();
  }

  #giveUp(task: Task): void {
    this.#lanes.remove(task);
    task.isGivenUp = true;
    task.reject(cancelled());
    // End only a slow task. A quick task finishes sooner than a new worker would start.
    if (task.worker?.isSlow) this.#kill(task.worker, "time");
    else this.#dispatch();
  }

  /** Removes the task from a worker that has finished it or has ended. */
  #ended(worker: TaskWorker): Task | undefined {
    const task = this.#running.get(worker);
    this.#running.delete(worker);
    if (task === undefined) return undefined;
    task.time?.end();
    task.worker = null;
    return task;
  }

  get #slowCount(): number {
    let count = 0;
    for (const { isSlow } of this.#running.keys()) if (isSlow) count++;
    return count;
  }
}

function isLarge({ transfer = [] }: TaskRequest): boolean {
  let bytes = 0;
  for (const moved of transfer) if (moved instanceof ArrayBuffer) bytes += moved.byteLength;
  return bytes > maxQuickBytes;
}

function tooManySlow(): ServerError {
  const message = "too many long requests are being read; try again shortly";
  return new ServerError("queue_full", message, { retryAfterSeconds: 5 });
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while it was read");
}

function draining(): ServerError {
  return new ServerError("draining", "the server is shutting down; send the request to another one");
}
