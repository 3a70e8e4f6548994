// Task worker: represents one worker thread in the pool. Tracks its shared values and its task. The pool decides
// which commands the worker gets.
import { Worker } from "node:worker_threads";
import type { Transferable } from "../endpoint/endpoint.ts";
import { fromErrorRecord, type ServerError } from "../errors.ts";
import { hasReachedHeapLimit } from "../thread/heap-limit.ts";
import { lowerPriority, ThreadClock } from "../thread/system-thread.ts";
import { LoadingFlag } from "./loading-flag.ts";
import type { EndReason, TaskCommand, TaskReport, TaskWorkerData } from "./task.ts";
import { WorkTime } from "./work-time.ts";

/**
 * Maximum heap growth in bytes since the last shared value was loaded. A worker that exceeds it is replaced after its task. V8
 * frees memory late, and never on an idle thread.
 */
const fullBytes = 128 * 2 ** 20;
/** Heap limit for short-lived objects in MiB. The pool's `heapMiB` limits the rest of the heap. */
const youngHeapMiB = 32;

export interface TaskWorkerOptions {
  readonly name: string;
  readonly module: URL;
  readonly init: unknown;
  readonly heapMiB: number;
}

/** Events for the pool. No event follows `onEnded`. */
export interface TaskWorkerHooks {
  /** Called when the worker has started or has finished a command. */
  onFree(worker: TaskWorker): void;
  onShared(worker: TaskWorker, key: string, value: unknown): void;
  onNotShared(key: string, error: ServerError): void;
  onResult(worker: TaskWorker, value: unknown): void;
  onFailure(worker: TaskWorker, error: ServerError): void;
  /** Called when the worker's thread has ended, because it reached its heap limit or crashed. */
  onEnded(worker: TaskWorker, reason: EndReason, cause: unknown): void;
}

/** The loading of one shared value. */
export interface Load {
  readonly key: string;
  readonly time: WorkTime;
  /** True if loading takes so long that another worker replaces this worker until the value is loaded. */
  hasStandIn: boolean;
}

export class TaskWorker {
  /** Keys of the worker's shared values, and of values that it could not load. */
  readonly keys = new Set<string>();
  readonly refusedKeys = new Set<string>();
  /** Current phase of the worker's task. */
  phase = "";
  /** True if the worker's heap has grown so much that it should be replaced. */
  isFull = false;
  /** True if the worker could not load a module. Node does not load it again, so the worker is to be replaced. */
  isBroken = false;
  isReady = false;
  readonly #worker: Worker;
  readonly #loading = new LoadingFlag();
  readonly #hooks: TaskWorkerHooks;
  /** The shared value that the worker is loading. */
  load: Load | null = null;
  /** Heap size in bytes after the last shared value was loaded. */
  #sharedBytes = 0;
  #hasTask = false;
  #isSlow = false;
  /** Thread id of the worker in the operating system; null if unknown. */
  #number: number | null = null;
  #clock: ThreadClock | null = null;
  #hasEnded = false;

  constructor({ name, module, init, heapMiB }: TaskWorkerOptions, hooks: TaskWorkerHooks) {
    const workerData: TaskWorkerData = { module: module.href, init, loading: this.#loading.memory };
    this.#hooks = hooks;
    this.#worker = new Worker(new URL("./task-entry.js", import.meta.url), {
      name,
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: heapMiB, maxYoungGenerationSizeMb: youngHeapMiB },
    });
    this.#loading.started();
    this.#worker.on("message", (report: TaskReport) => this.#receive(report));
    this.#worker.on("error", (error) => this.#ended(hasReachedHeapLimit(error, heapMiB) ? "memory" : "crash", error));
    this.#worker.on("exit", (code) => {
      this.#clock?.close();
      this.#loading.ended();
      this.#ended("crash", new Error(`the thread ended with code ${code}`));
    });
  }

  /** True if the worker can take a command. */
  get isFree(): boolean {
    return this.isReady && !this.#hasTask && this.load === null;
  }

  /** True if the worker runs only slow tasks, at a lower priority. */
  get isSlow(): boolean {
    return this.#isSlow;
  }

  /** Makes the worker a slow worker permanently. */
  slowDown(): void {
    if (!this.#isSlow && this.#number !== null) lowerPriority(this.#number);
    this.#isSlow = true;
  }

  /** Processor time that the thread has used so far, in ms; null if unknown. */
  get usedMs(): number | null {
    return this.#clock?.read() ?? null;
  }

  knows(key: string): boolean {
    return this.keys.has(key) || this.refusedKeys.has(key);
  }

  share(key: string, value: unknown): Load {
    this.load = { key, time: new WorkTime(this), hasStandIn: false };
    this.#send({ type: "share", key, value });
    return this.load;
  }

  unshare(key: string): void {
    this.refusedKeys.delete(key);
    if (this.keys.delete(key)) this.#send({ type: "unshare", key });
  }

  run(kind: string, input: unknown, transfer: readonly Transferable[]): void {
    this.#hasTask = true;
    this.phase = "";
    this.#send({ type: "run", kind, input }, transfer);
  }

  /**
   * Terminates the thread without calling the hooks. If the thread is loading modules, waits until they are loaded. Resolves
   * when the termination has begun.
   */
  async end(): Promise<void> {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.load?.time.end();
    await this.#loading.loaded();
    void this.#worker.terminate();
  }

  #send(command: TaskCommand, transfer: readonly Transferable[] = []): void {
    this.#worker.postMessage(command, [...transfer]);
  }

  #receive(report: TaskReport): void {
    if (this.#hasEnded) return;
    switch (report.type) {
      case "ready":
        this.isReady = true;
        this.#number = report.thread;
        this.#clock = new ThreadClock(report.thread);
        break;
      case "phase":
        this.phase = report.phase;
        return;
      case "broken":
        this.isBroken = true;
        if (!this.isReady) return;
        break;
      case "shared":
        this.keys.add(report.key);
        this.#sharedBytes = report.heapBytes;
        this.#hooks.onShared(this, report.key, report.value);
        this.#endLoad();
        break;
      case "not-shared":
        this.refusedKeys.add(report.key);
        this.#hooks.onNotShared(report.key, fromErrorRecord(report.error));
        this.#endLoad();
        break;
      default:
        this.#hasTask = false;
        this.isFull = report.heapBytes - this.#sharedBytes > fullBytes;
        if (report.type === "done") this.#hooks.onResult(this, report.value);
        else this.#hooks.onFailure(this, fromErrorRecord(report.error));
    }
    this.#hooks.onFree(this);
  }

  #endLoad(): void {
    this.load?.time.end();
    this.load = null;
  }

  #ended(reason: EndReason, cause: unknown): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.load?.time.end();
    this.#hooks.onEnded(this, reason, cause);
  }
}
