// Owns loading a GGUF file into the wasm engine: reads what the model is, sizes its KV cache, starts the compute threads, lets
// each load its part, and hands over a WasmModel. No native code. The thread that calls becomes the team's leader.
import { freemem } from "node:os";
import { ServerError } from "../../runtime/errors.ts";
import { Batch } from "../batch.ts";
import type { Engine, LoadedModel, LoadProgress, ModelCard, ModelSpec } from "../engine.ts";
import { readModelMetadata } from "../gguf/metadata.ts";
import { tensorTypes } from "../gguf/tensors.ts";
import { tokensPerSequence } from "../kv-budget.ts";
import { endOfGenerationTokens } from "../tokenizer/end-of-generation.ts";
import type { Blueprint } from "./blueprint.ts";
import { allocateShared, ComputeThread, type SharedBlocks } from "./compute-thread.ts";
import { memoryRefusal, readModel, roomBytes, tensorBytes, threadCount, type WasmModelFile } from "./fit.ts";
import { HelperThread } from "./helper-thread.ts";
import { createMemory, instantiateKernels, type KernelModule, loadKernels } from "./kernel-module.ts";
import { WasmModel } from "./model.ts";
import { PageTable } from "./pages.ts";

/** Tokens of one pass. Scratch grows with it; twice as many make prompts 5 % quicker on Node 24, and no quicker on Node 20. */
const passTokens = 64;
/** KV pages for copies of ended sequences, as a share of what the running ones may hold. */
const savedShare = 0.25;

const kvTypes: Readonly<Partial<Record<ModelSpec["kvType"], number>>> = { auto: 30, bf16: 30, f16: 1, f32: 0, q8_0: 8 };

export const wasmEngine: Engine = {
  async load(spec: ModelSpec, onProgress: LoadProgress): Promise<LoadedModel> {
    const threads = threadCount(spec.threads);
    const helpers: HelperThread[] = [];
    try {
      // They start while the file is looked at.
      while (helpers.length < threads - 1) helpers.push(new HelperThread());
      return await loadModel(spec, threads, helpers, onProgress);
    } catch (error) {
      await Promise.all(helpers.map((helper) => helper.terminate()));
      throw error;
    }
  },
};

async function loadModel(
  spec: ModelSpec,
  threads: number,
  helpers: readonly HelperThread[],
  onProgress: LoadProgress,
): Promise<WasmModel> {
  const kvType = kvTypes[spec.kvType];
  if (kvType === undefined) {
    const message = `cache_type ${spec.kvType} is not one the wasm engine has; it takes bf16, f16, f32 or q8_0`;
    throw new ServerError("config_invalid", message, { param: "cache_type" });
  }
  const [kernels, file] = await Promise.all([loadKernels(), readModel(spec.path)]);
  const refusal = memoryRefusal(file.table, threads);
  if (refusal !== null) throw new ServerError("config_invalid", refusal, { param: "engine" });
  const sizes = sizeKv(spec, file, kernels, kvType, threads);
  const pages = new PageTable({ slots: spec.maxSequences, threads, blockTokens: spec.blockTokens, ...sizes });
  const blueprint: Blueprint = {
    files: file.table.files,
    graph: file.graph,
    shape: file.shape,
    threads,
    passTokens,
    maxRows: Math.min(spec.maxSequences, passTokens),
    blockTokens: spec.blockTokens,
    kvType,
    pagesPerThread: pages.pagesPerThread,
    blocksPerSequence: Math.ceil(sizes.sequenceTokens / spec.blockTokens),
  };
  const shared = allocateShared(blueprint, spec.maxSequences);
  const [leader, { tokenizer }] = await Promise.all([
    loadThreads(blueprint, kernels, shared, helpers, tensorBytes(file.table), onProgress),
    readModelMetadata(spec.path, false),
  ]);
  const model = new WasmModel({
    blueprint,
    card: card(spec, file, kernels, threads, sizes.bytesPerPage * pages.pagesPerThread * threads),
    capacity: {
      maxSequences: spec.maxSequences,
      maxBatchTokens: spec.maxBatchTokens,
      sequenceTokens: sizes.sequenceTokens,
    },
    tokens: { endOfGeneration: endOfGenerationTokens(tokenizer) },
    leader,
    helpers,
    shared,
    pages,
    abortFlag: spec.abortFlag,
  });
  warmUp(model);
  return model;
}

interface KvSizes {
  readonly sequenceTokens: number;
  readonly savedPages: number;
  /** All layers of one page. */
  readonly bytesPerPage: number;
}

function sizeKv(
  spec: ModelSpec,
  { shape, table }: WasmModelFile,
  kernels: KernelModule,
  kvType: number,
  threads: number,
): KvSizes {
  const { layers, kvHeads, headLength, trainedContext } = shape;
  const { kvPageBytes } = instantiateKernels(kernels, createMemory(1));
  const layerBytes = kvPageBytes(kvType, kvHeads, headLength, spec.blockTokens);
  const free = process.availableMemory?.() ?? freemem();
  // Without a budget the cache takes a share of what is given here: it must fit beside the weights in the threads' memory.
  const freeBytes = Math.min(free, 2 * (roomBytes(threads) - tensorBytes(table)));
  const elements = { elementsPerLayer: layerBytes, bytesPerElement: 1 / spec.blockTokens };
  const sequenceTokens = tokensPerSequence(spec, { layers, trainedContext, ...elements }, freeBytes);
  const blocks = Math.ceil(sequenceTokens / spec.blockTokens);
  // At least a whole sequence: a conversation goes on from what is kept of it.
  const savedPages = Math.max(Math.ceil(blocks * spec.maxSequences * savedShare), blocks);
  return { sequenceTokens, savedPages, bytesPerPage: layerBytes * layers };
}

/** Every thread loads its part at the same time; this one's becomes the leader. */
async function loadThreads(
  blueprint: Blueprint,
  kernels: KernelModule,
  shared: SharedBlocks,
  helpers: readonly HelperThread[],
  totalBytes: number,
  onProgress: LoadProgress,
): Promise<ComputeThread> {
  const loadLeader = async () => {
    const leader = new ComputeThread(blueprint, 0, kernels, shared);
    await leader.load((bytes) => {
      leader.team.addLoaded(bytes);
      onProgress(Math.min(leader.team.loadedBytes / totalBytes, 1));
    });
    return leader;
  };
  const loading = helpers.map((helper, i) => helper.load({ blueprint, index: i + 1, kernels, shared }));
  const [leader] = await Promise.all([loadLeader(), ...loading]);
  return leader;
}

function card(
  spec: ModelSpec,
  { shape, table, graph }: WasmModelFile,
  kernels: KernelModule,
  threads: number,
  kvCacheBytes: number,
): ModelCard {
  const elements = [...table.tensors.values()].map(({ shape: lengths }) => lengths.reduce((a, b) => a * b, 1));
  const type = tensorTypes.get(graph.layers.flat().find((step) => step.kind === "attention")?.query.tensor.type ?? 0);
  return {
    path: spec.path,
    description: `${shape.architecture} ${type?.name ?? ""}`,
    engine: `wasm (${kernels.twin} SIMD${detailOf(kernels)})`,
    backend: `cpu, ${threads} threads`,
    vocabSize: shape.vocabSize,
    parameterCount: elements.reduce((a, b) => a + b, 0),
    tensorBytes: tensorBytes(table),
    trainedContext: shape.trainedContext,
    kvCacheBytes,
  };
}

/** What is to be known of the twin: the better one's better half, or why it is not the better one. */
function detailOf({ wideDot, plainBecause }: KernelModule): string {
  if (wideDot) return ", 8-bit dot";
  return plainBecause === undefined ? "" : `: ${plainBecause}`;
}

/** Lets the kernels be compiled and the scratch be paged in before the first request. */
function warmUp(model: WasmModel): void {
  const batch = new Batch(1, 1);
  batch.addRow(0, Int32Array.of(0), 0, 1, true, 0);
  model.step(batch);
  model.release(0);
}
