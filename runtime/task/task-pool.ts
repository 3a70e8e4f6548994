// Task pool: worker threads that each run one task at a time; clients take turns. A task is quick until it has run for
// `quickMs`. Then its worker becomes a slow worker for good, and a spare worker replaces it. At `limitMs`, or the heap limit, a
// task ends together with its thread. So a task delays other clients by at most `quickMs`. A task with a large input begins in
// the slow lane.
//
// There are `quickWorkers` quick workers, one spare (two while there are slow tasks) and at most `slowWorkers` slow ones. After
// a slow task, a client's next tasks wait in the slow lane for a while. A trusted client, whose tasks have all been short, may
// use a spare worker instead of waiting for others. Clients share the waiting places.

import type { Transferable } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import { ClientPaces } from "../queues/client-paces.ts";
import { type EndReason, TaskEnded } from "./task.ts";
import { TaskCrew, type TaskCrewOptions } from "./task-crew.ts";
import { TaskLanes, type TaskLanesOptions } from "./task-lanes.ts";
import type { TaskWorker } from "./task-worker.ts";

/** A task with a larger input will be slow: it begins in the slow lane. */
const maxQuickBytes = 8 * 2 ** 20;
/** Most slow tasks at once where one cannot be started again later, as its input has moved: it would be refused. */
const maxSlow = 2;
/** The limit of a task on the clock, over that of its processor time. */
const clockFactor = 2;
const shortestLookMs = 20;

export interface TaskPoolOptions extends TaskCrewOptions, TaskLanesOptions {
  /** Quick tasks at once. */
  readonly quickWorkers: number;
  /** Longest processor time of one task, and half its longest time on the clock. */
  readonly limitMs: number;
  /** Told when no worker starts any more, and when one does again. */
  readonly onDown?: (isDown: boolean) => void;
}

export interface TaskPoolStatistics {
  /** Tasks that wait now. */
  readonly waiting: number;
  /** Tasks that became slow, ever. */
  readonly slow: number;
}

export interface TaskRequest {
  readonly kind: string;
  readonly input: unknown;
  /** The client it runs for; clients take turns. */
  readonly client: string;
  /** Key of the shared value that it needs. */
  readonly needs?: string;
  /** Where it has another time limit than the pool's. */
  readonly limitMs?: number;
  /** What moves with the input. A task that moved something cannot be started a second time. */
  readonly transfer?: readonly Transferable[];
  /** Gives the task up: it rejects with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}

interface Task extends TaskRequest {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  /** While it runs. */
  worker: TaskWorker | null;
  timer: NodeJS.Timeout | undefined;
  startedMs: number;
  /** Processor time its worker had used before the task; null where the system does not say. */
  usedBeforeMs: number | null;
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
   * Gives every worker a value under a key, those that start later too. Settles with what the first one answered. Rejects
   * with the ServerError of a worker that cannot take it, or with TaskEnded; the value is dropped then.
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
   * Runs a task. Rejects with the ServerError it threw, with TaskEnded where it was ended, and with `queue_full`,
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
        timer: undefined,
        startedMs: 0,
        usedBeforeMs: null,
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

  /** Ends every worker; tasks that run or wait are rejected with `draining`. */
  close(): void {
    this.#isClosed = true;
    this.#crew.close(draining());
    for (const worker of [...this.#running.keys()]) this.#ended(worker)?.reject(draining());
    this.#lanes.refuseAll(draining());
  }

  #refusalOf({ client, signal }: Task): ServerError | null {
    if (signal?.aborted) return cancelled();
    if (this.#isClosed) return draining();
    return this.#lanes.refusalFor(client);
  }

  /** Starts what can be started: workers that are missing, then tasks. */
  #dispatch(): void {
    if (this.#isClosed) return;
    const { quickWorkers, slowWorkers } = this.#options;
    const slowWanted = Math.max(this.#slowCount, Math.min(slowWorkers, this.#slowCount + this.#lanes.slowSize));
    this.#crew.keep(quickWorkers + this.#spareWorkers, slowWanted);
    while (this.#startNext(this.#nextQuick(), this.#crew.free, false));
    while (this.#slowCount < slowWorkers && this.#startNextSlow());
  }

  /** Two while there are slow tasks: a trusted client may occupy the first with a slow task of its own. */
  get #spareWorkers(): number {
    return this.#slowCount + this.#lanes.slowSize > 0 ? 2 : 1;
  }

  #startNextSlow(): boolean {
    const workers = this.#workersForSlow;
    return workers.length > 0 && this.#startNext(this.#lanes.takeSlow(), workers, true);
  }

  /**
   * Workers that may take a slow task: free slow ones. While slow workers are missing, free quick ones too; the last of these
   * only where there are more than `quickWorkers` and the spare one.
   */
  get #workersForSlow(): readonly TaskWorker[] {
    const { free, freeSlow, freeCount, servingCount, slowWorkerCount } = this.#crew;
    const { quickWorkers, slowWorkers } = this.#options;
    const canSpare = freeCount > 1 || (freeCount === 1 && servingCount > quickWorkers + 1);
    return canSpare && slowWorkerCount < slowWorkers ? [...freeSlow, ...free] : freeSlow;
  }

  /** The next task of the quick lane; undefined where none may start now. */
  #nextQuick(): Task | undefined {
    const { free, freeCount, isChanging } = this.#crew;
    const isRoom = this.#running.size - this.#slowCount < this.#options.quickWorkers;
    if (free.length === 0) return undefined;
    const isReserved = freeCount <= this.#spareWorkers && isChanging && this.#paces.hasTrusted;
    if (isRoom && !isReserved) return this.#lanes.takeQuick();
    // While workers change, only a long-trusted client gets the last free one: others gain trust, then send slow tasks.
    const isLast = freeCount <= 1 && isChanging;
    return isRoom || this.#runsStranger ? this.#lanes.takeTrusted(this.#paces, isLast) : undefined;
  }

  get #runsStranger(): boolean {
    for (const [{ isSlow }, { client }] of this.#running) if (!isSlow && !this.#paces.isTrusted(client)) return true;
    return false;
  }

  /** Starts a task that was taken from a lane. False where there is none, or where it has to wait for its worker. */
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
    task.worker = worker;
    task.startedMs = performance.now();
    task.usedBeforeMs = worker.usedMs;
    if (isSlow) worker.slowDown();
    this.#running.set(worker, task);
    if (isSlow) this.#limit(task, worker);
    else task.timer = setTimeout(() => this.#turnSlow(task, worker), quickMs);
    worker.run(kind, input, transfer);
  }

  /** Ends a task once it has used its processor time: a slow worker gets little of it on a busy machine. */
  #limit(task: Task, worker: TaskWorker): void {
    const limitMs = this.#limitOf(task);
    const clockLeftMs = () => clockFactor * limitMs - (performance.now() - task.startedMs);
    task.timer = setTimeout(
      () => {
        if (clockLeftMs() <= 0 || usedMs(task, worker) >= limitMs) this.#kill(worker, "time");
        else this.#limit(task, worker);
      },
      Math.max(Math.min(limitMs - usedMs(task, worker), clockLeftMs()), shortestLookMs),
    );
  }

  #limitOf({ limitMs = this.#options.limitMs }: Task): number {
    return limitMs;
  }

  /**
   * A quick task has run for `quickMs` of clock time, so its client is slow. Processor time would show this too late on a busy
   * machine, after several slow tasks of the client. At the maximum of slow tasks, a client with several gives one up to a
   * client with none; otherwise the task waits until one ends.
   */
  #turnSlow(task: Task, worker: TaskWorker): void {
    const { slowWorkers } = this.#options;
    const most = task.transfer === undefined ? slowWorkers : Math.max(slowWorkers, maxSlow);
    this.#slowEver++;
    this.#setSlow(task.client);
    const giver = this.#slowCount < most || task.isGivenUp ? null : this.#slowGiver(task.client);
    if (giver !== null) this.#putOff(giver);
    if (!task.isGivenUp && this.#slowCount < most) {
      worker.slowDown();
      this.#limit(task, worker);
    } else {
      this.#putOff(worker);
    }
    this.#dispatch();
  }

  /** A client has had a slow task: the others that it has waiting go to the slow lane, too. */
  #setSlow(client: string): void {
    this.#paces.slow(client);
    this.#lanes.moveToSlow(client);
  }

  /** Ends the worker of a task. The task is started again in the slow lane; refused where its input has moved. */
  #putOff(worker: TaskWorker): void {
    const task = this.#ended(worker);
    this.#crew.drop(worker);
    if (task === undefined) return;
    if (task.transfer === undefined && !task.isGivenUp) this.#lanes.add(task, true);
    else task.reject(tooManySlow());
  }

  /** Where `client` has no slow task: the worker of the latest one of a client that has several. */
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

  /** A worker has done its task, well or not. */
  #done(worker: TaskWorker): Task | undefined {
    const task = this.#ended(worker);
    if (task !== undefined && !worker.isSlow) this.#paces.quick(task.client, usedMs(task, worker));
    return task;
  }

  /** Ends a running task together with its worker. */
  #kill(worker: TaskWorker, reason: EndReason): void {
    this.#crew.drop(worker);
    this.#lost(worker, reason, undefined);
  }

  /** The worker is gone, and its task with it. */
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
    // A task that is still quick ends sooner than a new worker would start.
    if (task.worker?.isSlow) this.#kill(task.worker, "time");
    else this.#dispatch();
  }

  /** Takes its task off a worker that has finished it, or that is gone. */
  #ended(worker: TaskWorker): Task | undefined {
    const task = this.#running.get(worker);
    this.#running.delete(worker);
    if (task === undefined) return undefined;
    clearTimeout(task.timer);
    task.worker = null;
    return task;
  }

  get #slowCount(): number {
    let count = 0;
    for (const { isSlow } of this.#running.keys()) if (isSlow) count++;
    return count;
  }
}

/** Processor time that a task has had on its worker; the time on the clock where the system does not say. */
function usedMs({ startedMs, usedBeforeMs }: Task, worker: TaskWorker): number {
  const nowMs = worker.usedMs;
  return nowMs === null || usedBeforeMs === null ? performance.now() - startedMs : nowMs - usedBeforeMs;
}

function isLarge({ transfer = [] }: TaskRequest): boolean {
  let bytes = 0;
  for (const moved of transfer) if (moved instanceof ArrayBuffer) bytes += moved.byteLength;
  return bytes > maxQuickBytes;
}

function tooManySlow(): ServerError {
  const message = "too many requests that take long are being read; try again shortly";
  return new ServerError("queue_full", message, { retryAfterSeconds: 5 });
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while it was read");
}

function draining(): ServerError {
  return new ServerError("draining", "the server is shutting down; send the request to another one");
}
