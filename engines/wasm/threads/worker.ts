// Compute worker: entry point of every compute thread except the leader. It loads its part of the model. It then runs
// the passes that the leader starts, without an event loop between them. It ends when the group is stopped, or when the
// thread that started it ends.
import { once } from "node:events";
import { parentPort } from "node:worker_threads";
import { type ErrorRecord, toErrorRecord } from "../../../runtime/errors.ts";
import type { ThreadPages } from "../kv/page-memory.ts";
import type { KernelMemory, KernelModule } from "../load/kernel-module.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { ComputeThread } from "./compute-thread.ts";
import type { SharedBlocks } from "./shared-blocks.ts";

/** Task that the leader sends to the worker once, after its start. */
export interface WorkerTask {
  readonly plan: PartitionPlan;
  readonly index: number;
  readonly kernels: KernelModule;
  readonly shared: SharedBlocks;
}

/** The only message from the worker: sent when loading has succeeded or failed. */
export type WorkerReport =
  | { readonly ready: true; readonly pages: ThreadPages; readonly memory: KernelMemory }
  | { readonly ready: false; readonly error: ErrorRecord };

if (!parentPort) throw new Error("a compute thread is a worker");
const [task] = (await once(parentPort, "message")) as [WorkerTask];
const thread = await load(task);
if (thread) work(thread);

async function load({ plan, index, kernels, shared }: WorkerTask): Promise<ComputeThread | null> {
  try {
    const thread = new ComputeThread(plan, index, kernels, shared);
    await thread.load((bytes) => thread.group.addLoaded(bytes));
    report({ ready: true, pages: thread.kvPages, memory: thread.memory });
    return thread;
  } catch (error) {
    report({ ready: false, error: toErrorRecord(error) });
    return null;
  }
}

function work(thread: ComputeThread): void {
  try {
    while (thread.group.awaitPass()) thread.runPass();
  } catch (error) {
    thread.group.fail();
    throw error;
  }
}

function report(message: WorkerReport): void {
  parentPort?.postMessage(message);
}
