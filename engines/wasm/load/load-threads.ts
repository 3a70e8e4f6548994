// Loading of the compute threads. All threads load their parts of a model at the same time, and the calling thread
// becomes the leader of the group. Used for models that generate and for encoders.
import type { LoadProgress } from "../../engine.ts";
import type { ThreadPages } from "../kv/page-memory.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { ComputeThread } from "../threads/compute-thread.ts";
import type { HelperThread } from "../threads/helper-thread.ts";
import type { SharedBlocks } from "../threads/shared-blocks.ts";
import type { KernelMemory, KernelModule } from "./kernel-module.ts";

export interface LoadedThreads {
  readonly leader: ComputeThread;
  readonly pages: readonly ThreadPages[];
  readonly memories: readonly KernelMemory[];
}

export async function loadThreads(
  plan: PartitionPlan,
  kernels: KernelModule,
  shared: SharedBlocks,
  helpers: readonly HelperThread[],
  totalBytes: number,
  onProgress: LoadProgress,
): Promise<LoadedThreads> {
  const loadLeader = async () => {
    const leader = new ComputeThread(plan, 0, kernels, shared);
    await leader.load((bytes) => {
      leader.group.addLoaded(bytes);
      onProgress(Math.min(leader.group.loadedBytes / totalBytes, 1));
    });
    return leader;
  };
  const loading = helpers.map((helper, i) => helper.load({ plan, index: i + 1, kernels, shared }));
  const [leader, ...others] = await Promise.all([loadLeader(), ...loading]);
  return {
    leader,
    pages: [leader.kvPages, ...others.map(({ pages }) => pages)],
    memories: [leader.memory, ...others.map(({ memory }) => memory)],
  };
}
