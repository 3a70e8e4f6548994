// Owns loading a GGUF file with llama.cpp: sizes the KV cache, opens model and context, warms them up, and hands over a
// LlamaModel. Errors carry llama.cpp's own last words, because those name what is wrong with a file.
import { availableParallelism, freemem } from "node:os";
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";
import { Batch } from "../batch.ts";
import type { Engine, LoadProgress, ModelCard, ModelSpec } from "../engine.ts";
import { allocatedTokens, type KvShape, kvBytesPerToken, tokensPerSequence } from "../kv-budget.ts";
import {
  ggmlType,
  ggmlTypeBytes,
  type LlamaFunctions,
  loadMode,
  type NativeContextParams,
  type Pointer,
} from "./abi.ts";
import { openComputeLock } from "./compute-lock.ts";
import { type LlamaLibrary, openLibrary } from "./library.ts";
import { LlamaModel } from "./model.ts";

/** Rows llama.cpp computes in one pass; larger chunks are cut by it. */
const physicalBatchTokens = 512;
const flashAttentionAuto = -1;
/** LLAMA_MAX_SEQ of the known release. */
const maxNativeSequences = 256;
// Made once: koffi keeps every type for ever.
const progressCallback = koffi.pointer(koffi.proto("bool", ["float", "void*"]));

export const llamaEngine = {
  async load(spec: ModelSpec, onProgress: LoadProgress): Promise<LlamaModel> {
    if (spec.maxSequences > maxNativeSequences) {
      const message = `max_seqs ${spec.maxSequences} is more than llama.cpp's ${maxNativeSequences} sequences; lower it`;
      throw new ServerError("config_invalid", message, { param: "max_seqs" });
    }
    const library = await openLibrary(spec.gpuLayers !== 0);
    const freeBeforeBytes = availableMemory();
    const model = openModel(library, spec, onProgress);
    let loaded: LlamaModel;
    try {
      // A GPU is asked once the weights are on it. In main memory mapped weights make room where the cache needs it.
      const freeBytes = library.backend === "cpu" ? freeBeforeBytes : await library.freeGpuBytes();
      loaded = openContext(library, spec, model, freeBytes);
    } catch (error) {
      library.functions.modelFree(model);
      throw error;
    }
    try {
      warmUp(loaded);
    } catch (error) {
      loaded.dispose();
      throw error;
    }
    return loaded;
  },
} satisfies Engine;

/** Bytes this process may still take, container limits included. */
function availableMemory(): number {
  return process.availableMemory?.() ?? freemem();
}

function openModel(library: LlamaLibrary, spec: ModelSpec, onProgress: LoadProgress): Pointer {
  const { functions } = library;
  const params = functions.modelDefaultParams();
  params.n_gpu_layers = spec.gpuLayers;
  params.load_mode = spec.mmap ? loadMode.auto : loadMode.copy;
  const report = (fraction: number) => {
    onProgress(fraction);
    return true;
  };
  const progress = koffi.register(report, progressCallback);
  params.progress_callback = progress;
  try {
    return library.withLog((lines) => {
      const model = functions.modelLoadFromFile(spec.path, params);
      if (model) return model;
      throw new ServerError("model_file_invalid", `llama.cpp could not load "${spec.path}": ${lastWords(lines)}`);
    });
  } finally {
    koffi.unregister(progress);
  }
}

function openContext(library: LlamaLibrary, spec: ModelSpec, model: Pointer, freeBytes: number): LlamaModel {
  const { functions } = library;
  const shape = kvShape(functions, model, spec);
  const sequenceTokens = tokensPerSequence(spec, shape, freeBytes);
  const params = contextParams(library, spec, sequenceTokens);
  const computeLock = spec.computeLock === null ? null : openComputeLock(spec.computeLock);
  const context = library.withLog((lines) => {
    const opened = functions.initFromModel(model, params);
    if (opened) return opened;
    throw new ServerError(
      "config_invalid",
      `llama.cpp could not open a context of ${spec.maxSequences} x ${sequenceTokens} tokens: ${lastWords(lines)}`,
      { param: "kv_cache" },
    );
  });
  const recurrent = functions.modelIsRecurrent(model) || functions.modelIsHybrid(model);
  const rollsBack = !recurrent && functions.modelSlidingWindow(model) === 0;
  return new LlamaModel({
    functions,
    model,
    context,
    card: card(library, spec, model, shape, sequenceTokens),
    capacity: { maxSequences: spec.maxSequences, maxBatchTokens: spec.maxBatchTokens, sequenceTokens },
    computeLock,
    capabilities: { truncate: rollsBack, copyPrefix: rollsBack, saveState: true, adaptersPerStep: 0 },
  });
}

function contextParams(library: LlamaLibrary, spec: ModelSpec, sequenceTokens: number): NativeContextParams {
  const params = library.functions.contextDefaultParams();
  const kvType = ggmlType[kvTypeOf(spec)];
  const threads = spec.threads || Math.min(library.physicalCores, availableParallelism());
  params.n_ctx = sequenceTokens * spec.maxSequences;
  params.n_seq_max = spec.maxSequences;
  // Filler rows come on top of what the scheduler asks for.
  params.n_batch = spec.maxBatchTokens + spec.maxSequences;
  params.n_ubatch = Math.min(physicalBatchTokens, params.n_batch);
  params.n_outputs_max = spec.maxSequences;
  params.n_outputs_max_per_seq = 1;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.flash_attn_type = flashAttentionAuto;
  params.type_k = kvType;
  params.type_v = kvType;
  params.kv_unified = false;
  params.no_perf = true;
  if (spec.abortFlag) {
    params.abort_callback = library.flagIsSet;
    params.abort_callback_data = koffi.address(new Uint8Array(spec.abortFlag));
  }
  return params;
}

function kvTypeOf({ kvType }: ModelSpec) {
  return kvType === "auto" ? "f16" : kvType;
}

function kvShape(functions: LlamaFunctions, model: Pointer, spec: ModelSpec): KvShape {
  const architecture = metadata(functions, model, "general.architecture") ?? "";
  const headLength = Math.floor(functions.modelEmbeddingLength(model) / Math.max(functions.modelHeadCount(model), 1));
  const length = (kind: string) =>
    Number(metadata(functions, model, `${architecture}.attention.${kind}_length`) ?? headLength);
  return {
    layers: functions.modelLayerCount(model),
    elementsPerLayer: functions.modelKvHeadCount(model) * (length("key") + length("value")),
    bytesPerElement: ggmlTypeBytes[kvTypeOf(spec)],
    trainedContext: functions.modelTrainedContext(model),
  };
}

function card(
  library: LlamaLibrary,
  spec: ModelSpec,
  model: Pointer,
  shape: KvShape,
  sequenceTokens: number,
): ModelCard {
  const { functions } = library;
  const buffer = Buffer.alloc(256);
  const length = functions.modelDescription(model, buffer, buffer.length);
  return {
    path: spec.path,
    description: buffer.toString("utf8", 0, Math.min(length, buffer.length - 1)),
    engine: `llama.cpp ${library.release}`,
    backend: library.backend,
    vocabSize: functions.vocabTokenCount(functions.modelGetVocab(model)),
    parameterCount: Number(functions.modelParameterCount(model)),
    tensorBytes: Number(functions.modelSize(model)),
    trainedContext: shape.trainedContext,
    kvCacheBytes: kvBytesPerToken(shape) * allocatedTokens(sequenceTokens) * spec.maxSequences,
  };
}

function metadata(functions: LlamaFunctions, model: Pointer, key: string): string | null {
  const buffer = Buffer.alloc(256);
  const length = functions.modelMetadata(model, key, buffer, buffer.length);
  return length < 0 ? null : buffer.toString("utf8", 0, Math.min(length, buffer.length - 1));
}

/** Pages the weights in and lets the library allocate its buffers, so that the first request does not pay for it. */
function warmUp(model: LlamaModel): void {
  const batch = new Batch(1, 1);
  batch.addRow(0, Int32Array.of(0), 0, 1, true, 0);
  model.step(batch);
  model.kv.release(0);
}

/** The lines of a native log that say what went wrong. */
function lastWords(lines: readonly string[]): string {
  const errors = lines.filter((line) => /error|fail|invalid|unknown|unsupported|missing/i.test(line));
  return (errors.length > 0 ? errors : lines).slice(-3).join("; ") || "it gave no reason";
}
