// llama.cpp engine: loads a GGUF file, opens model and context, runs a warm-up pass, and returns a LlamaModel or a
// LlamaEncoder. Error messages contain the last lines of llama.cpp's log, which describe the fault of a file.
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";
import { computeCores, computeThreads } from "../../runtime/host/cores.ts";
import { availableMemory } from "../../runtime/host/memory.ts";
import { Batch } from "../batch.ts";
import { kvBytesPerToken } from "../decoding/kv/kv-budget.ts";
import type { Capabilities, Engine, LoadProgress, ModelCard, ModelSpec } from "../engine.ts";
import { readSuppressedTokens } from "../files/gguf/metadata.ts";
import { needsMrope } from "../files/projector/image-projector.ts";
import { LlamaAdapters } from "./adapters/adapters.ts";
import { NativeCollector } from "./calibration/native-collector.ts";
import { openComputeLock } from "./compute-lock.ts";
import { type ContextSizes, contextSizes, maxNativeSequences } from "./context-sizes.ts";
import { LlamaEncoder } from "./encoder.ts";
import { StreamsKv } from "./kv/kv-streams.ts";
import { UnifiedKv } from "./kv/kv-unified.ts";
import type { SlotKv } from "./kv/slot-kv.ts";
import { SlotPositions } from "./kv/slot-positions.ts";
import { LlamaModel } from "./model.ts";
import { kvTypeOf, type ModelTraits, traitsOf } from "./model-traits.ts";
import type { LlamaHeads } from "./mtp/mtp.ts";
import { HeadedKv } from "./mtp/mtp-kv.ts";
import { mtpTraits, openHeads } from "./mtp/mtp-load.ts";
import { ggmlType, loadMode, type NativeContextParams, poolingType } from "./native/abi.ts";
import { type LlamaLibrary, lastWords, openLibrary } from "./native/library.ts";
import { type Cores, closeCores, NativeContext } from "./native/native-context.ts";
import type { Pointer } from "./native/pointer.ts";
import { withTensorSplit } from "./native/tensor-split.ts";

export type NativeModel = LlamaModel | LlamaEncoder;

const flashAttentionAuto = -1;
/** Number of positions that llama.cpp needs for each embedding in models with M-RoPE. */
const mropeAxes = 4;
/**
 * Lengths of prompt chunks in tokens. The minimum on a CPU is 64, because ggml computes attention in tiles only if a
 * sequence has 64 rows or more. Measured speeds by chunk length: bench/results/long.md.
 */
const cpuChunk = { least: 64, best: 256 } as const;
const gpuChunk = { least: 32, best: 512 } as const;
// The type is created only once, because koffi never frees a type.
const progressCallback = koffi.pointer(koffi.proto("bool", ["float", "void*"]));

export const llamaEngine = {
  async load(spec: ModelSpec, onProgress: LoadProgress): Promise<NativeModel> {
    const library = await openLibrary(spec.gpuLayers !== 0);
    const suppressed = await readSuppressedTokens(spec.path);
    const freeBeforeBytes = availableMemory();
    const { pointer: model, weightBytes } = openModel(library, spec, onProgress);
    let loaded: NativeModel;
    try {
      // On a GPU, free memory is measured after the weights are loaded. On a CPU, free memory is measured before the
      // load, because the system drops mapped weights from main memory if the KV cache needs room.
      const onCpu = library.backend === "cpu";
      const memory = onCpu ? { freeBytes: freeBeforeBytes, gpuBytes: null } : await library.gpuMemory();
      const found = traitsOf(library.functions, model, spec);
      const { functions } = library;
      const traits = spec.mtp ? mtpTraits(functions, model, found, spec) : found;
      const sizes = contextSizes(spec.mtp ? { ...spec, pagedKv: true } : spec, traits, memory);
      // With MTP, `traits.kv` includes the KV memory of the MTP layers. The model's saved states do not contain those
      // layers, so the model itself uses the KV traits without them.
      loaded = openLoaded(library, spec, model, {
        weightBytes,
        traits: { ...traits, kv: found.kv },
        sizes,
        suppressed,
      });
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

interface OpenModel {
  readonly pointer: Pointer;
  readonly weightBytes: number;
}

/** Traits of a model, its context sizes and its suppressed tokens. */
interface Findings {
  readonly weightBytes: number;
  readonly traits: ModelTraits;
  readonly sizes: ContextSizes;
  /** Ids of the tokens that are never sampled. */
  readonly suppressed: readonly number[];
}

function openModel(library: LlamaLibrary, spec: ModelSpec, onProgress: LoadProgress): OpenModel {
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
  params.load_mtp = spec.mtp?.path === null;
  try {
    return library.withLog((lines) => {
      const pointer = withTensorSplit(spec.gpuSplit ?? null, (split) => {
        return functions.modelLoadFromFile(spec.path, { ...params, tensor_split: split });
      });
      if (pointer) return { pointer, weightBytes: bufferBytes(lines) || Number(functions.modelSize(pointer)) };
      throw new ServerError("model_file_invalid", `llama.cpp could not load "${spec.path}": ${lastWords(lines)}`);
    });
  } finally {
    koffi.unregister(progress);
  }
}

/**
 * Reads the log of a load and returns the total size of the model buffers in bytes: the mapped file, and copies of
 * weights in the layout of the kernels.
 */
function bufferBytes(lines: readonly string[]): number {
  const sizes = lines.map((line) => /model buffer size = +([\d.]+) MiB/.exec(line)?.[1] ?? 0);
  return sizes.reduce<number>((sum, size) => sum + Number(size) * 2 ** 20, 0);
}

/** Opens the context of a loaded model. The returned NativeModel takes ownership of `model`. */
function openLoaded(library: LlamaLibrary, spec: ModelSpec, model: Pointer, findings: Findings): NativeModel {
  const { functions } = library;
  if (spec.images?.hasGridPositions && !findings.traits.hasMrope) throw needsMrope(spec.images.path);
  const params = contextParams(library, spec, findings);
  // The collector for calibration reads the inputs of matrices, which must be in main memory, so it needs the CPU backend.
  const collects = spec.collectsInputs && library.backend === "cpu" && !findings.traits.isEncoder;
  const collector = collects ? new NativeCollector(library.tensorReader()) : null;
  if (collector !== null) params.cb_eval = collector.callback;
  const computeLock = spec.computeLock === null ? null : openComputeLock(spec.computeLock);
  const cores = { threadPool: library.startThreads(params.n_threads), computeLock };
  try {
    const pointer = openContext(library, spec, model, findings, params);
    const context = new NativeContext({ functions, model, context: pointer, cores });
    const heads = spec.mtp ? openHeadsOf(library, spec, { context, params, cores }, findings) : null;
    return modelOf(library, spec, { context, heads, collector }, findings);
  } catch (error) {
    collector?.dispose();
    closeCores(cores);
    throw error;
  }
}

interface OpenTarget {
  readonly context: NativeContext;
  readonly params: NativeContextParams;
  readonly cores: Cores;
}

function openHeadsOf(library: LlamaLibrary, spec: ModelSpec, target: OpenTarget, findings: Findings): LlamaHeads {
  const { context, params, cores } = target;
  try {
    return openHeads({
      spec,
      target: context,
      params,
      capacity: findings.sizes.capacity,
      cores,
      loadAssistant: (path) => openModel(library, { ...spec, path, mtp: { path: null } }, () => {}).pointer,
      openContext: (model, headParams) => openContext(library, spec, model, findings, headParams),
    });
  } catch (error) {
    context.free();
    throw error;
  }
}

function openContext(
  library: LlamaLibrary,
  spec: ModelSpec,
  model: Pointer,
  { traits, sizes }: Findings,
  params: NativeContextParams,
): Pointer {
  const { functions } = library;
  return library.withLog((lines) => {
    const context = functions.initFromModel(model, params);
    if (!context) {
      const wanted = `${sizes.contextTokens} tokens for ${sizes.sequences} sequences`;
      const message = `llama.cpp could not open a context of ${wanted}: ${lastWords(lines)}`;
      throw new ServerError("config_invalid", message, { param: "kv_cache" });
    }
    if (traits.isEncoder || functions.getMemory(context)) return context;
    functions.free(context);
    throw new ServerError("model_file_invalid", `"${spec.path}" neither generates token by token nor is an encoder`);
  });
}

function contextParams(library: LlamaLibrary, spec: ModelSpec, { traits, sizes }: Findings): NativeContextParams {
  const params = library.functions.contextDefaultParams();
  const kvType = ggmlType[kvTypeOf(spec)];
  const threads = computeThreads(spec.threads, Math.min(library.mathCores, computeCores()));
  params.n_ctx = sizes.contextTokens;
  params.n_seq_max = sizes.sequences;
  params.n_batch = sizes.batchTokens;
  params.n_ubatch = sizes.passTokens;
  params.n_outputs_max = sizes.maxOutputs;
  params.n_outputs_max_per_seq = sizes.maxOutputs;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.pooling_type = nativePooling(traits);
  params.embeddings = traits.isEncoder;
  params.flash_attn_type = flashAttentionAuto;
  params.type_k = kvType;
  params.type_v = kvType;
  params.kv_unified = sizes.mode !== "streams";
  // With swa_full, sliding-window layers keep the tokens before the window. MTP needs this to drop the last tokens of a
  // sequence.
  params.swa_full = Boolean(spec.mtp);
  params.no_perf = true;
  if (spec.abortFlag) {
    params.abort_callback = library.flagIsSet;
    params.abort_callback_data = koffi.address(new Uint8Array(spec.abortFlag));
  }
  return params;
}

function chunkOf({ backend }: LlamaLibrary): Capabilities["chunkTokens"] {
  return backend === "cpu" ? cpuChunk : gpuChunk;
}

/**
 * Returns the pooling type for llama.cpp. Encoders and `rank` use native pooling. Other hidden states of a generating
 * model are pooled by this engine, because llama.cpp pools only within one pass and a row may take several passes.
 */
function nativePooling({ pooling, isEncoder }: ModelTraits): number {
  return pooling !== null && (isEncoder || pooling === "rank") ? poolingType[pooling] : poolingType.none;
}

interface OpenParts {
  readonly context: NativeContext;
  readonly heads: LlamaHeads | null;
  readonly collector: NativeCollector | null;
}

function modelOf(
  library: LlamaLibrary,
  spec: ModelSpec,
  { context, heads, collector }: OpenParts,
  findings: Findings,
): NativeModel {
  const { traits, sizes, suppressed } = findings;
  const { isEncoder, rollsBack, pooling, pooledLength, hasMrope } = traits;
  const { capacity } = sizes;
  const capabilities = {
    truncate: rollsBack,
    copyPrefix: rollsBack,
    saveState: !isEncoder,
    generates: !isEncoder,
    pooling,
    pooledLength,
    wholeSequences: isEncoder,
    // In mode `streams` (a KV cache for each sequence), the sequence ids of a step must be consecutive. Missing ids get padding
    // tokens, which are dropped after the step, so a step has either prompt rows or decode rows. Models that cannot drop tokens
    // get no padding: prompt rows of the missing sequences fill the gaps, so only these models mix both kinds of rows.
    mixesLengths: sizes.mode !== "streams" || !rollsBack,
    chunkTokens: isEncoder ? { least: 1, best: capacity.maxBatchTokens } : chunkOf(library),
    adaptersPerStep: spec.adapters && !isEncoder ? 1 : 0,
  };
  const parts = { context, card: card(library, spec, context, findings), capacity, capabilities, suppressed };
  if (isEncoder) return new LlamaEncoder({ ...parts, passTokens: sizes.passTokens });
  const adapters = spec.adapters ? new LlamaAdapters(library, context) : null;
  const embeddedSizes =
    spec.images || spec.audio ? { passTokens: sizes.passTokens, axes: hasMrope ? mropeAxes : 1 } : null;
  const positions = hasMrope ? new SlotPositions(capacity.maxSequences) : null;
  const layout = `llama.cpp ${library.release}/${library.backend}/${kvTypeOf(spec)}/${sizes.mode}`;
  const bytesPerToken = kvBytesPerToken(traits.kv);
  const pool = { capacity, layout, bytesPerToken, positions, maxSequenceIds: maxNativeSequences };
  if (heads !== null) {
    return new LlamaModel({
      ...parts,
      kv: new HeadedKv(context, pool, heads.feeder),
      maxOutputs: sizes.maxOutputs,
      heads,
      adapters,
      collector,
      embeddedSizes,
    });
  }
  const kv: SlotKv =
    sizes.mode === "unified"
      ? new UnifiedKv(context, pool)
      : new StreamsKv(context, {
          capacity,
          // The suffix ", windows" changes the name of the layout, so that states saved by older versions for
          // sliding-window models are rejected. Those states hold all tokens and would not fit.
          layout: `${layout} of ${capacity.maxSequences}${rollsBack ? "" : ", windows"}`,
          truncates: rollsBack,
          bytesPerToken,
          positions,
        });
  return new LlamaModel({ ...parts, kv, maxOutputs: sizes.maxOutputs, heads, adapters, collector, embeddedSizes });
}

function card(library: LlamaLibrary, spec: ModelSpec, context: NativeContext, findings: Findings): ModelCard {
  const { weightBytes, traits, sizes } = findings;
  const { functions } = library;
  const { model } = context;
  const buffer = Buffer.alloc(256);
  const length = functions.modelDescription(model, buffer, buffer.length);
  return {
    path: spec.path,
    description: buffer.toString("utf8", 0, Math.min(length, buffer.length - 1)),
    engine: `llama.cpp ${library.release}`,
    backend: library.backend,
    vocabSize: functions.vocabTokenCount(context.vocab),
    inputLength: functions.modelInputLength(model),
    parameterCount: Number(functions.modelParameterCount(model)),
    tensorBytes: Number(functions.modelSize(model)),
    weightBytes,
    trainedContext: traits.kv.trainedContext,
    kvCacheBytes: sizes.kvCacheBytes,
  };
}

/**
 * Runs a first pass. It pages in the weights and makes llama.cpp allocate its buffers, so that the first request does
 * not wait for this work.
 */
function warmUp(model: NativeModel): void {
  const batch = new Batch(1, 1);
  model.kv.reserve(0, 1);
  batch.addRow(0, Int32Array.of(0), 0, 1, model.capabilities.generates ? 1 : 0, 0);
  batch.wantPooled[0] = model.capabilities.generates ? 0 : 1;
  model.step(batch);
  model.kv.release(0);
}
