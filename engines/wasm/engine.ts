// Engine of the wasm backend: loads a GGUF file without native code. It reads the hyperparameters, sizes the KV cache
// and starts the compute threads. Each thread loads its part of the weights. The result is a WasmModel; load-encoder.ts
// does the same for encoders. The calling thread becomes the leader of the thread group.
import { ServerError } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { availableMemory } from "../../runtime/host/memory.ts";
import { Batch } from "../batch.ts";
import { type KvPool, kvPool } from "../decoding/kv/kv-budget.ts";
import { PageTable } from "../decoding/kv/page-table.ts";
import type { Capacity, Engine, LoadedModel, LoadProgress, MixtureSpec, ModelSpec } from "../engine.ts";
import { endOfGenerationTokens } from "../files/gguf/end-of-generation.ts";
import { readModelMetadata, readSuppressedTokens } from "../files/gguf/metadata.ts";
import { needsMrope } from "../files/projector/image-projector.ts";
import { WasmAdapters } from "./adapters/host.ts";
import { shapeForContext } from "./graph/hyperparameters.ts";
import { inputFloats } from "./graph/shape.ts";
import { PageMemory } from "./kv/page-memory.ts";
import { PagedKv } from "./kv/paged-kv.ts";
import { memoryRefusal, readModel, roomBytes, tensorBytes, type WasmModelFile } from "./load/fit.ts";
import {
  createMemory,
  instantiateKernels,
  type KernelMemory,
  type KernelModule,
  loadKernels,
} from "./load/kernel-module.ts";
import { loadEncoder } from "./load/load-encoder.ts";
import { loadThreads } from "./load/load-threads.ts";
import { modelCard } from "./load/model-card.ts";
import { type LoadedMixture, loadMixture, type MixtureParts, mixtureRank } from "./mixture/mixture.ts";
import { WasmModel } from "./model.ts";
import type { Mixture } from "./plan/mixture.ts";
import { kvLayers, type PartitionPlan } from "./plan/partition-plan.ts";
import { HelperThread } from "./threads/helper-thread.ts";
import { allocateShared } from "./threads/shared-blocks.ts";

/**
 * Maximum number of tokens in one pass. Scratch memory grows with it. With 128 tokens instead of 64, prefill is 5 %
 * faster on Node 24 and no faster on Node 20.
 */
const passTokens = 64;
/** Version of the byte layout of a KV page; part of the layout name of saved pages. */
const pageVersion = 1;

const kvTypes: Readonly<Partial<Record<ModelSpec["kvType"], number>>> = { auto: 30, bf16: 30, f16: 1, f32: 0, q8_0: 8 };

export const wasmEngine: Engine = {
  async load(spec: ModelSpec, onProgress: LoadProgress): Promise<LoadedModel> {
    const threads = computeThreads(spec.threads);
    const helpers: HelperThread[] = [];
    try {
      // The helper threads start while the file is read.
      while (helpers.length < threads - 1) helpers.push(new HelperThread());
      const [kernels, file] = await Promise.all([loadKernels(), readModel(spec.path)]);
      const refusal = memoryRefusal(file.table, threads);
      if (refusal !== null) throw new ServerError("config_invalid", refusal, { param: "engine" });
      if (spec.pooling && !file.graph.isEncoder) throw poolsNothing(spec.pooling);
      const load = file.graph.isEncoder ? loadEncoder : loadModel;
      return await load(spec, file, kernels, helpers, onProgress);
    } catch (error) {
      await Promise.all(helpers.map((helper) => helper.terminate()));
      throw error;
    }
  },
};

function poolsNothing(pooling: string): ServerError {
  const message = `pooling ${pooling} expects an encoder; got a model that generates text: remove pooling from the settings`;
  return new ServerError("config_invalid", message, { param: "pooling" });
}

async function loadModel(
  spec: ModelSpec,
  file: WasmModelFile,
  kernels: KernelModule,
  helpers: readonly HelperThread[],
  onProgress: LoadProgress,
): Promise<WasmModel> {
  const threads = helpers.length + 1;
  const kvType = kvTypes[spec.kvType];
  if (kvType === undefined) {
    const message = `the wasm engine does not support cache_type ${spec.kvType}: set bf16, f16, f32 or q8_0`;
    throw new ServerError("config_invalid", message, { param: "cache_type" });
  }
  const mixing = await readMixture(spec, file, threads);
  const mixture = mixing?.mixture ?? null;
  const pool = sizeKv(spec, file, mixture, kernels, kvType, threads);
  const capacity = capacityOf(spec, pool, threads);
  const { images = null, audio = null } = spec;
  const takesMedia = images !== null || audio !== null;
  if (takesMedia && mixing)
    throw new ServerError("config_invalid", "xlora cannot be combined with mmproj", { param: "mmproj" });
  if (images?.hasGridPositions && file.shape.ropes.every(({ axes }) => axes === null)) throw needsMrope(images.path);
  // If the embeddings of an image tile attend to each other, all of them must be in one pass.
  const passLength = images?.attendsAhead ? Math.max(passTokens, images.tileTokens) : passTokens;
  const plan: PartitionPlan = {
    files: file.table.files,
    graph: file.graph,
    shape: shapeForContext(file.shape, capacity.sequenceTokens),
    threads,
    passTokens: passLength,
    // A row of a batch (tokens of one sequence) that contains images or audio may become several rows of a pass.
    maxRows: takesMedia ? passLength : Math.min(capacity.maxSequences, passLength),
    maxOutputs: Math.min(capacity.maxLogitsRows, passLength),
    blockTokens: capacity.blockTokens,
    kvType,
    pagesPerThread: pool.blocksPerThread,
    blocksPerSequence: Math.ceil(capacity.sequenceTokens / capacity.blockTokens),
    inputFloats: takesMedia ? inputFloats(file.shape) : 0,
    adapterRank: mixture ? mixtureRank(mixture) : (spec.adapters?.maxRank ?? 0),
    mixture,
  };
  const shared = allocateShared(plan, capacity.maxLogitsRows, mixing?.classifier ?? null);
  const [{ leader, pages, memories }, { tokenizer }, suppressed] = await Promise.all([
    loadThreads(plan, kernels, shared, helpers, tensorBytes(file.table), onProgress),
    readModelMetadata(spec.path, false),
    readSuppressedTokens(spec.path),
  ]);
  const memory = new PageMemory(kvLayers(plan), pages);
  const model = new WasmModel({
    plan,
    card: modelCard(spec, file, kernels, threads, capacity.kvBlocks * memory.pageBytes),
    capacity,
    kv: createKv(capacity, threads, memory, layoutOf(plan, mixing)),
    adapters: spec.adapters ? new WasmAdapters(plan, memories, spec.adapters.maxBytes) : null,
    mixture: spec.mixture ? await loadStacked(plan, memories, spec.mixture) : null,
    tokens: { endOfGeneration: endOfGenerationTokens(tokenizer), suppressed },
    leader,
    helpers,
    shared,
    abortFlag: spec.abortFlag,
  });
  warmUp(model);
  return model;
}

function capacityOf(spec: ModelSpec, { blocksPerThread, sequenceTokens }: KvPool, threads: number): Capacity {
  const { maxSequences, maxBatchTokens, extraLogitsRows, blockTokens } = spec;
  const maxLogitsRows = maxSequences + extraLogitsRows;
  const kvBlocks = blocksPerThread * threads;
  return { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows, blockTokens, kvBlocks };
}

function sizeKv(
  spec: ModelSpec,
  { graph, shape, table }: WasmModelFile,
  mixture: Mixture | null,
  kernels: KernelModule,
  kvType: number,
  threads: number,
): KvPool {
  const { kvHeads, headLength, trainedContext } = shape;
  const { kvPageBytes } = instantiateKernels(kernels, createMemory(1));
  const layerBytes = kvPageBytes(kvType, kvHeads, headLength, spec.blockTokens);
  const free = availableMemory();
  // `room`: bytes of the threads' memories that are left for the KV cache beside the weights. If the KV budget is a
  // fraction, the cache takes this fraction of `freeBytes`, so `freeBytes` must not exceed `room`. Without a budget,
  // the cache takes a quarter of `freeBytes` (kv-budget.ts). Because `freeBytes` is at most 2 * `room`, the cache then
  // takes at most half of `room`.
  const room = roomBytes(threads) - tensorBytes(table);
  const freeBytes = Math.min(free, spec.kvBudget === null ? 2 * room : room);
  const elements = { elementsPerLayer: layerBytes, bytesPerElement: 1 / spec.blockTokens };
  const memory = { freeBytes, gpuBytes: null };
  return kvPool(spec, { layers: kvLayers({ graph, shape, mixture }), trainedContext, ...elements }, memory, threads);
}

function createKv(capacity: Capacity, threads: number, memory: PageMemory, layout: string): PagedKv {
  const { maxSequences, sequenceTokens, blockTokens, kvBlocks } = capacity;
  const pagesPerThread = kvBlocks / threads;
  const table = new PageTable({ slots: maxSequences, sequenceTokens, blockTokens, threads, pagesPerThread });
  return new PagedKv(table, memory, layout);
}

/**
 * Returns the name of the KV page layout. Saved pages can be restored only into a model with the same layout name. The
 * name includes the X-LoRA mixture and the rope for long contexts, because both change the keys and values of the same
 * tokens.
 */
function layoutOf({ kvType, blockTokens, shape }: PartitionPlan, mixing: LoadedMixture | null): string {
  const layout = `wasm pages ${pageVersion}, type ${kvType}, blocks of ${blockTokens}`;
  const rope = shape.ropes[0] === shape.longRope?.rope ? ", long rope" : "";
  return layout + rope + (mixing ? `, mixture ${mixing.digest}` : "");
}

async function readMixture(
  { mixture, adapters, maxSequences }: ModelSpec,
  { graph, shape }: WasmModelFile,
  threads: number,
): Promise<LoadedMixture | null> {
  if (!mixture) return null;
  if (!adapters) return loadMixture(mixture, { graph, shape, threads }, maxSequences);
  throw new ServerError(
    "config_invalid",
    "xlora cannot be combined with adapters loaded at run time: remove one of the settings",
  );
}

/** Loads the adapters of an X-LoRA mixture, stacked into one adapter. */
async function loadStacked(
  plan: PartitionPlan,
  memories: readonly KernelMemory[],
  { adapters, keptAfter }: MixtureSpec,
): Promise<MixtureParts> {
  const host = new WasmAdapters(plan, memories, Number.POSITIVE_INFINITY);
  try {
    await host.loadStacked(1, adapters);
    return { address: host.addressOf(1) ?? 0, keptAfter };
  } finally {
    host.dispose();
  }
}

/** Runs one token, so that the kernels are compiled and the scratch memory is paged in before the first request. */
function warmUp(model: WasmModel): void {
  const batch = new Batch(1, 1);
  batch.addRow(0, Int32Array.of(0), 0, 1, 1, 0);
  model.step(batch);
  model.kv.release(0);
}
