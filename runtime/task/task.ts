// Messages between a task pool and its workers, and what a module of tasks exports. Types, and one error.

import type { Transferable } from "../endpoint/endpoint.ts";
import type { ErrorRecord } from "../errors.ts";

/** The result of a task. What is listed in `transfer` moves to the pool's thread instead of being copied. */
export interface TaskOutput {
  readonly value: unknown;
  readonly transfer?: readonly Transferable[];
}

/** What runs on a task worker: one task at a time, to its end. Throws ServerErrors; anything else is a programmer's mistake. */
export interface TaskHandlers {
  /** Keeps a value that tasks need, under a key; every worker is given it. Returns the answer to TaskPool.share(). */
  share(key: string, value: unknown): unknown;
  unshare(key: string): void;
  /** `enter` names the part of the task that begins: the last one says where a task was that had to be ended. */
  run(kind: string, input: unknown, enter: (phase: string) => void): TaskOutput | Promise<TaskOutput>;
}

/** The type of the function `start` that a module of tasks exports. */
export type StartTasks<Init> = (init: Init) => Promise<TaskHandlers>;

/** What a task worker is started with. */
export interface TaskWorkerData {
  readonly module: string;
  readonly init: unknown;
}

/** Pool to worker. */
export type TaskOrder =
  | { readonly type: "share"; readonly key: string; readonly value: unknown }
  | { readonly type: "unshare"; readonly key: string }
  | { readonly type: "run"; readonly kind: string; readonly input: unknown };

/** Worker to pool. */
export type TaskReport =
  | { readonly type: "ready"; readonly thread: number | null }
  | { readonly type: "shared"; readonly key: string; readonly value: unknown; readonly heapBytes: number }
  | { readonly type: "not-shared"; readonly key: string; readonly error: ErrorRecord }
  | { readonly type: "phase"; readonly phase: string }
  | { readonly type: "done"; readonly value: unknown; readonly heapBytes: number }
  | { readonly type: "failed"; readonly error: ErrorRecord; readonly heapBytes: number };

/** Why a task was ended before it had a result. */
export type EndReason = "time" | "memory" | "crash";

/** A task was ended together with its worker. */
export class TaskEnded extends Error {
  override readonly name = "TaskEnded";
  readonly reason: EndReason;
  /** The part of the task that was under way; "" where it named none. */
  readonly phase: string;

  constructor(reason: EndReason, phase: string, cause?: unknown) {
    super(`a task was ended (${reason})${phase === "" ? "" : ` in "${phase}"`}`, cause === undefined ? {} : { cause });
    this.reason = reason;
    this.phase = phase;
  }
}
