// Shared blocks: the memory that all compute threads of a model share, in addition to each thread's own memory. The
// leader allocates it once per load and sends it to the other threads.
import { adapterSlabBytes } from "../adapters/pass.ts";
import { divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import { PassDescriptor } from "../plan/pass-descriptor.ts";
import { AllGather } from "./all-gather.ts";
import { ThreadGroup } from "./thread-group.ts";
import { slabBytes } from "./thread-memory.ts";

/** Blocks of memory that all compute threads access. */
export interface SharedBlocks {
  readonly control: SharedArrayBuffer;
  readonly pass: SharedArrayBuffer;
  readonly gatherBuffer: SharedArrayBuffer;
  /** All-gather buffer of the adapters' products; empty if there are no adapters. */
  readonly adapterGatherBuffer: SharedArrayBuffer;
  /**
   * Weights and biases of the classifier of an X-LoRA mixture (mixture/mixture.ts); null if the model is not an X-LoRA
   * mixture.
   */
  readonly classifier: SharedArrayBuffer | null;
  /**
   * Input rows of a pass, which replace embeddings: `inputFloats` floats for each token; empty if the model has no
   * input rows.
   */
  readonly inputRows: SharedArrayBuffer;
  /** Logits of a step: vocabSize floats for each logits row. */
  readonly logits: SharedArrayBuffer;
}

const floatBytes = 4;

export function allocateShared(
  plan: PartitionPlan,
  logitsRows: number,
  classifier: SharedArrayBuffer | null,
): SharedBlocks {
  const { threads, shape } = plan;
  return {
    control: new SharedArrayBuffer(ThreadGroup.controlBytes(threads)),
    pass: new SharedArrayBuffer(PassDescriptor.bytes(plan)),
    gatherBuffer: new SharedArrayBuffer(AllGather.bufferBytes(threads, slabBytes(plan, divideGraph(plan)))),
    adapterGatherBuffer: new SharedArrayBuffer(AllGather.bufferBytes(threads, adapterSlabBytes(plan))),
    classifier,
    inputRows: new SharedArrayBuffer(plan.passTokens * plan.inputFloats * floatBytes),
    logits: new SharedArrayBuffer(logitsRows * shape.vocabSize * floatBytes),
  };
}
