// The entry of every compute thread but the leader: loads its part of the model, then runs passes as they are ordered. It
// runs no event loop between passes; it ends when the team is stopped, or with the thread that started it.
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import type { Blueprint } from "./blueprint.ts";
import { ComputeThread, type SharedBlocks } from "./compute-thread.ts";
import type { KernelModule } from "./kernel-module.ts";

export interface WorkerData {
  readonly blueprint: Blueprint;
  readonly index: number;
  readonly kernels: KernelModule;
  readonly shared: SharedBlocks;
}

/** What a worker tells the leader, once. */
export type WorkerReport = { readonly ready: true } | { readonly ready: false; readonly error: ErrorRecord };

const { blueprint, index, kernels, shared } = workerData as WorkerData;
let thread: ComputeThread | null = null;
try {
  const loading = new ComputeThread(blueprint, index, kernels, shared);
  await loading.load((bytes) => loading.team.addLoaded(bytes));
  thread = loading;
  report({ ready: true });
} catch (error) {
  report({ ready: false, error: toErrorRecord(error) });
}
if (thread) work(thread);

function work(thread: ComputeThread): void {
  try {
    while (thread.team.awaitOrder()) thread.runPass();
  } catch (error) {
    thread.team.fail();
    throw error;
  }
}

function report(message: WorkerReport): void {
  parentPort?.postMessage(message);
}
