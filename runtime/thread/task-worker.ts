// One worker of a task pool, from outside: its thread, what it has been given to share, and the task it is at. The pool
// decides what it does.
import { Worker } from "node:worker_threads";
import { fromErrorRecord, type ServerError } from "../errors.ts";
import type { Transferable } from "./endpoint.ts";
import type { EndReason, TaskOrder, TaskReport, TaskWorkerData } from "./task.ts";

/** A worker that holds more than this behind a task is replaced: V8 gives memory back late, and to no thread that rests. */
const fullBytes = 160 * 2 ** 20;
/** For what lives a short time; the rest of the heap is the pool's setting. */
const youngHeapMiB = 32;

export interface TaskWorkerOptions {
  readonly name: string;
  readonly module: URL;
  readonly init: unknown;
  readonly heapMiB: number;
}

/** What the pool is told. Nothing more comes after `onEnded`. */
export interface TaskWorkerHooks {
  /** It can take orders, or is done with one. */
  onFree(worker: TaskWorker): void;
  onShared(worker: TaskWorker, key: string, value: unknown): void;
  onNotShared(key: string, error: ServerError): void;
  onResult(worker: TaskWorker, value: unknown): void;
  onFailure(worker: TaskWorker, error: ServerError): void;
  /** Its thread has ended by itself: it ran out of memory, or crashed. */
  onEnded(worker: TaskWorker, reason: EndReason, cause: unknown): void;
}

export class TaskWorker {
  /** Keys of what it has, and of what it could not take. */
  readonly keys = new Set<string>();
  readonly refusedKeys = new Set<string>();
  /** The part of its task that is under way. */
  phase = "";
  isSlow = false;
  /** It holds so much memory that it should be replaced. */
  isFull = false;
  isReady = false;
  readonly #worker: Worker;
  readonly #hooks: TaskWorkerHooks;
  /** The key of what it loads. */
  sharing: string | null = null;
  #hasTask = false;
  #hasEnded = false;

  constructor({ name, module, init, heapMiB }: TaskWorkerOptions, hooks: TaskWorkerHooks) {
    const workerData: TaskWorkerData = { module: module.href, init };
    this.#hooks = hooks;
    this.#worker = new Worker(new URL("./task-entry.js", import.meta.url), {
      name,
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: heapMiB, maxYoungGenerationSizeMb: youngHeapMiB },
    });
    this.#worker.on("message", (report: TaskReport) => this.#hear(report));
    this.#worker.on("error", (error) => this.#ended(isOutOfMemory(error) ? "memory" : "crash", error));
    this.#worker.on("exit", (code) => this.#ended("crash", new Error(`the thread ended with code ${code}`)));
  }

  /** It can be given an order. */
  get isFree(): boolean {
    return this.isReady && !this.#hasTask && this.sharing === null;
  }

  get hasTask(): boolean {
    return this.#hasTask;
  }

  knows(key: string): boolean {
    return this.keys.has(key) || this.refusedKeys.has(key);
  }

  share(key: string, value: unknown): void {
    this.sharing = key;
    this.#order({ type: "share", key, value });
  }

  unshare(key: string): void {
    this.refusedKeys.delete(key);
    if (this.keys.delete(key)) this.#order({ type: "unshare", key });
  }

  run(kind: string, input: unknown, transfer: readonly Transferable[]): void {
    this.#hasTask = true;
    this.phase = "";
    this.#order({ type: "run", kind, input }, transfer);
  }

  /** Ends its thread, whatever it is at. The hooks are not told. */
  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    void this.#worker.terminate();
  }

  #order(order: TaskOrder, transfer: readonly Transferable[] = []): void {
    this.#worker.postMessage(order, [...transfer]);
  }

  #hear(report: TaskReport): void {
    if (this.#hasEnded) return;
    switch (report.type) {
      case "ready":
        this.isReady = true;
        break;
      case "phase":
        this.phase = report.phase;
        return;
      case "shared":
        this.sharing = null;
        this.keys.add(report.key);
        this.#hooks.onShared(this, report.key, report.value);
        break;
      case "not-shared":
        this.sharing = null;
        this.refusedKeys.add(report.key);
        this.#hooks.onNotShared(report.key, fromErrorRecord(report.error));
        break;
      default:
        this.#hasTask = false;
        this.isFull = report.heapBytes > fullBytes;
        if (report.type === "done") this.#hooks.onResult(this, report.value);
        else this.#hooks.onFailure(this, fromErrorRecord(report.error));
    }
    this.#hooks.onFree(this);
  }

  #ended(reason: EndReason, cause: unknown): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#hooks.onEnded(this, reason, cause);
  }
}

function isOutOfMemory(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY";
}
