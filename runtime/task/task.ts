// Task messages between a pool and its workers, the interface of a module that implements tasks, and the error TaskEnded.

import type { Transferable } from "../endpoint/endpoint.ts";
import type { ErrorRecord } from "../errors.ts";

/** Result of a task. The objects in `transfer` are transferred to the pool's thread instead of copied. */
export interface TaskOutput {
  readonly value: unknown;
  readonly transfer?: readonly Transferable[];
}

/** Runs tasks on a task worker, one at a time. Throws ServerErrors; any other error is a programming error. */
export interface TaskHandlers {
  /** Stores a value that tasks need under a key. Called on every worker. TaskPool.share() resolves with the result. */
  share(key: string, value: unknown): unknown;
  unshare(key: string): void;
  /** Runs a task. `enter` names the phase that begins. If the task is ended, TaskEnded names the last phase. */
  run(kind: string, input: unknown, enter: (phase: string) => void): TaskOutput | Promise<TaskOutput>;
}

/**
 * Type of the function `start` that a module of tasks exports. `load` imports a module; the worker is not terminated during the
 * import.
 */
export type StartTasks<Init> = (init: Init, load: (url: string) => Promise<unknown>) => Promise<TaskHandlers>;

/** Initial data of a task worker. */
export interface TaskWorkerData {
  readonly module: string;
  readonly init: unknown;
  /** Shared memory of the worker's LoadingFlag. */
  readonly loading: SharedArrayBuffer;
}

/** Messages from the pool to a worker. */
export type TaskCommand =
  | { readonly type: "share"; readonly key: string; readonly value: unknown }
  | { readonly type: "unshare"; readonly key: string }
  | { readonly type: "run"; readonly kind: string; readonly input: unknown };

/** Messages from a worker to the pool. */
export type TaskReport =
  | { readonly type: "ready"; readonly thread: number | null }
  | { readonly type: "shared"; readonly key: string; readonly value: unknown; readonly heapBytes: number }
  | { readonly type: "not-shared"; readonly key: string; readonly error: ErrorRecord }
  | { readonly type: "phase"; readonly phase: string }
  | { readonly type: "done"; readonly value: unknown; readonly heapBytes: number }
  | { readonly type: "failed"; readonly error: ErrorRecord; readonly heapBytes: number }
  /** A module could not be loaded. */
  | { readonly type: "broken" };

/** Reason why a task was ended without a result. */
export type EndReason = "time" | "memory" | "crash";

/** Error of a task that was ended together with its worker. */
export class TaskEnded extends Error {
  override readonly name = "TaskEnded";
  readonly reason: EndReason;
  /** The last phase that the task named; "" if it named none. */
  readonly phase: string;

  constructor(reason: EndReason, phase: string, cause?: unknown) {
    super(`a task was ended (${reason})${phase === "" ? "" : ` in "${phase}"`}`, cause === undefined ? {} : { cause });
    this.reason = reason;
    this.phase = phase;
  }
}
