// Loading of an encoder. A pass has room for at least the longest text. The KV memory has room for one pass only. Called
// by engine.ts if the file is an encoder.
import { ServerError } from "../../../runtime/errors.ts";
import { Batch } from "../../batch.ts";
import type { LoadProgress, ModelSpec } from "../../engine.ts";
import { WasmEncoder } from "../encoder.ts";
import { tokenPooling } from "../graph/graph-pooling.ts";
import { shapeForContext } from "../graph/hyperparameters.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import type { HelperThread } from "../threads/helper-thread.ts";
import { allocateShared } from "../threads/shared-blocks.ts";
import { encoderSizes } from "./encoder-sizes.ts";
import { tensorBytes, type WasmModelFile } from "./fit.ts";
import type { KernelModule } from "./kernel-module.ts";
import { loadThreads } from "./load-threads.ts";
import { modelCard } from "./model-card.ts";

/**
 * KV type F32. Keys and values need no smaller type, because they are read only once and are discarded after their
 * layer.
 */
const kvType = 0;

export async function loadEncoder(
  spec: ModelSpec,
  file: WasmModelFile,
  kernels: KernelModule,
  helpers: readonly HelperThread[],
  onProgress: LoadProgress,
): Promise<WasmEncoder> {
  if (spec.mixture) {
    throw new ServerError(
      "config_invalid",
      "xlora expects a model that generates text; got an encoder: remove xlora from the settings",
    );
  }
  const threads = helpers.length + 1;
  const { graph } = file;
  const { capacity, ...sizes } = encoderSizes(spec, file.shape, threads);
  const { blockTokens } = capacity;
  const plan: PartitionPlan = {
    files: file.table.files,
    graph: spec.pooling === "tokens" ? { ...graph, pooling: tokenPooling(graph.pooling, file.shape.width) } : graph,
    shape: shapeForContext(file.shape, capacity.sequenceTokens),
    threads,
    ...sizes,
    maxOutputs: 0,
    blockTokens,
    kvType,
    blocksPerSequence: Math.ceil(capacity.sequenceTokens / blockTokens),
    inputFloats: 0,
    adapterRank: 0,
    mixture: null,
  };
  const shared = allocateShared(plan, 0, null);
  const { leader } = await loadThreads(plan, kernels, shared, helpers, tensorBytes(file.table), onProgress);
  const card = modelCard(spec, file, kernels, threads, 0);
  const encoder = new WasmEncoder({ plan, card, capacity, leader, helpers, abortFlag: spec.abortFlag });
  warmUp(encoder);
  return encoder;
}

/** Runs one token, so that the kernels are compiled and the scratch memory is paged in before the first request. */
function warmUp(encoder: WasmEncoder): void {
  const batch = new Batch(1, 1);
  batch.wantPooled[batch.addRow(0, Int32Array.of(0), 0, 1, 0, 0)] = 1;
  encoder.step(batch);
}
