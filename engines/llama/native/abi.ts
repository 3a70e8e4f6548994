// llama.cpp's binary interface: struct layouts and functions, keyed by the llama.cpp release that the installed package
// names. Any other release is rejected, because a wrong layout corrupts memory. Source: llama.h of that release.
// test/parity/llama/abi.test.ts compares the layout with the libraries.
import koffi, { type LibraryHandle, type TypeObject } from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import { bindPrediction, type PredictionFunctions } from "../mtp/mtp-abi.ts";
import type { Pointer } from "./pointer.ts";

type Type = string | TypeObject;

export interface NativeModelParams {
  n_gpu_layers: number;
  load_mode: number;
  /** Address of the array with each GPU's share of the layers (tensor-split.ts). */
  tensor_split: Pointer;
  progress_callback: bigint | null;
  vocab_only: boolean;
  use_extra_bufts: boolean;
  load_mtp: boolean;
}

export interface NativeContextParams {
  n_ctx: number;
  n_batch: number;
  n_ubatch: number;
  n_seq_max: number;
  n_outputs_max: number;
  n_outputs_max_per_seq: number;
  n_threads: number;
  n_threads_batch: number;
  ctx_type: number;
  pooling_type: number;
  flash_attn_type: number;
  type_k: number;
  type_v: number;
  /** Callback that llama.cpp calls for each tensor of a pass (engines/llama/calibration). */
  cb_eval: Pointer;
  abort_callback: Pointer;
  abort_callback_data: bigint | null;
  embeddings: boolean;
  no_perf: boolean;
  swa_full: boolean;
  kv_unified: boolean;
  ctx_other: Pointer;
}

export interface NativeBatch {
  n_tokens: number;
  token: Pointer;
  /** Address of the hidden states, one per token, for passes that read hidden states as input. */
  embd: Pointer | bigint;
  pos: Pointer;
  n_seq_id: Pointer;
  seq_id: Pointer;
  logits: Pointer;
}

/** Functions under their names in llama.h without the prefix. A negative or false result means failure. */
export interface LlamaFunctions {
  backendInit(): void;
  logSet(callback: Pointer, userData: Pointer): void;
  modelDefaultParams(): NativeModelParams;
  contextDefaultParams(): NativeContextParams;
  modelLoadFromFile(path: string, params: NativeModelParams): Pointer;
  modelFree(model: Pointer): void;
  initFromModel(model: Pointer, params: NativeContextParams): Pointer;
  free(context: Pointer): void;
  modelGetVocab(model: Pointer): Pointer;
  modelDescription(model: Pointer, buffer: Uint8Array, size: number): number;
  modelSize(model: Pointer): bigint | number;
  modelParameterCount(model: Pointer): bigint | number;
  modelTrainedContext(model: Pointer): number;
  modelLayerCount(model: Pointer): number;
  modelHeadCount(model: Pointer): number;
  modelKvHeadCount(model: Pointer): number;
  modelEmbeddingLength(model: Pointer): number;
  /** Returns the number of floats of an embedding in a batch: those of all vectors, for models with DeepStack. */
  modelInputLength(model: Pointer): number;
  modelOutputEmbeddingLength(model: Pointer): number;
  modelScoreCount(model: Pointer): number;
  modelSlidingWindow(model: Pointer): number;
  modelRopeType(model: Pointer): number;
  modelPredictionLayerCount(model: Pointer): number;
  modelIsRecurrent(model: Pointer): boolean;
  modelIsHybrid(model: Pointer): boolean;
  modelIsDiffusion(model: Pointer): boolean;
  modelHasEncoder(model: Pointer): boolean;
  modelMetadata(model: Pointer, key: string, buffer: Uint8Array, size: number): number;
  vocabTokenCount(vocab: Pointer): number;
  vocabIsEndOfGeneration(vocab: Pointer, token: number): boolean;
  tokenize(
    vocab: Pointer,
    text: string,
    textBytes: number,
    tokens: Int32Array,
    maxTokens: number,
    addSpecial: boolean,
    parseSpecial: boolean,
  ): number;
  batchInit(maxTokens: number, embeddingSize: number, maxSequencesPerToken: number): NativeBatch;
  batchFree(batch: NativeBatch): void;
  decode(context: Pointer, batch: NativeBatch): number;
  getLogits(context: Pointer): Pointer;
  /** Enables or disables the output of hidden states for every token of a pass. */
  setEmbeddings(context: Pointer, wanted: boolean): void;
  setCausal(context: Pointer, causal: boolean): void;
  getEmbeddings(context: Pointer): Pointer;
  /** Returns the pooled output of a sequence; null if the context has no pooling type. */
  getPooled(context: Pointer, sequence: number): Pointer;
  getMemory(context: Pointer): Pointer;
  memoryRemove(memory: Pointer, sequence: number, from: number, to: number): boolean;
  /**
   * Copies tokens `from` to `to` of a sequence to another sequence. If sequences do not share one pool of cells, only a
   * whole sequence may be copied; any other range ends the process.
   */
  memoryCopy(memory: Pointer, source: number, target: number, from: number, to: number): void;
  stateSize(context: Pointer, sequence: number): bigint | number;
  stateGet(context: Pointer, buffer: Uint8Array, size: number, sequence: number): bigint | number;
  stateSet(context: Pointer, buffer: Uint8Array, size: number, sequence: number): bigint | number;
  /** Loads an adapter; null if the file is not an adapter of the model. */
  adapterLoad(model: Pointer, path: string): Pointer;
  adapterFree(adapter: Pointer): void;
  /** Replaces the current set of adapters. `adapters` contains their addresses. */
  setAdapters(context: Pointer, adapters: BigUint64Array, count: number, scales: Float32Array): number;
  /** Waits until the GPU has finished all passes. */
  synchronize(context: Pointer): void;
  /** Sets the CPU thread pools (thread-pool.ts): one for passes of one token, one for longer passes. */
  attachThreads(context: Pointer, pool: Pointer, batchPool: Pointer): void;
  /** Returns the functions for models with MTP. Throws `config_invalid` if the library lacks them. */
  prediction(): PredictionFunctions;
}

/** ggml_type ids of the number types of a KV cache. */
export const ggmlType = { f32: 0, f16: 1, q4_0: 2, q8_0: 8, bf16: 30 } as const;

/** Bytes per KV element. A block of a quantised type has 32 elements and a 2-byte scale. */
export const ggmlTypeBytes = { f32: 4, f16: 2, q4_0: 18 / 32, q8_0: 34 / 32, bf16: 2 } as const;

export const loadMode = { auto: -1, copy: 0 } as const;

/** llama_context_type id of an MTP context. */
export const predictionContext = 1;

/** llama_pooling_type ids. */
export const poolingType = { none: 0, mean: 1, cls: 2, last: 3, rank: 4 } as const;

type Bind = (library: LibraryHandle) => LlamaFunctions;

const releases: Readonly<Record<string, Bind>> = { "v0.5.0": bindV050 };

/** Returns the binding for a llama.cpp release. Throws `config_invalid` for an unknown release. */
export function bindingOf(release: string): Bind {
  const bind = releases[release];
  if (bind) return bind;
  throw new ServerError(
    "config_invalid",
    `the installed llama.cpp libraries are release "${release}"; this version knows ${Object.keys(releases).join(", ")}. ` +
      "Reinstall the dependencies with `npm ci`, which pins the matching package.",
  );
}

/** Returns the struct types of release v0.5.0. Exported for the layout test. */
export function structsV050() {
  const modelParams = koffi.struct({
    devices: "void*",
    tensor_buft_overrides: "void*",
    n_gpu_layers: "int32",
    split_mode: "int32",
    load_mode: "int32",
    lazy_mode: "int32",
    main_gpu: "int32",
    tensor_split: "void*",
    progress_callback: "void*",
    progress_callback_user_data: "void*",
    kv_overrides: "void*",
    vocab_only: "bool",
    check_tensors: "bool",
    use_extra_bufts: "bool",
    no_host: "bool",
    no_alloc: "bool",
    load_mtp: "bool",
  });
  const contextParams = koffi.struct({
    n_ctx: "uint32",
    n_batch: "uint32",
    n_ubatch: "uint32",
    n_seq_max: "uint32",
    n_rs_seq: "uint32",
    n_outputs_max: "uint32",
    n_outputs_max_per_seq: "uint32",
    n_threads: "int32",
    n_threads_batch: "int32",
    ctx_type: "int32",
    rope_scaling_type: "int32",
    pooling_type: "int32",
    attention_type: "int32",
    flash_attn_type: "int32",
    rope_freq_base: "float",
    rope_freq_scale: "float",
    yarn_ext_factor: "float",
    yarn_attn_factor: "float",
    yarn_beta_fast: "float",
    yarn_beta_slow: "float",
    yarn_orig_ctx: "uint32",
    defrag_thold: "float",
    cb_eval: "void*",
    cb_eval_user_data: "void*",
    type_k: "int32",
    type_v: "int32",
    abort_callback: "void*",
    abort_callback_data: "void*",
    embeddings: "bool",
    offload_kqv: "bool",
    no_perf: "bool",
    op_offload: "bool",
    swa_full: "bool",
    kv_unified: "bool",
    samplers: "void*",
    n_samplers: "size_t",
    ctx_other: "void*",
  });
  const batch = koffi.struct({
    n_tokens: "int32",
    token: "void*",
    embd: "void*",
    pos: "void*",
    n_seq_id: "void*",
    seq_id: "void*",
    logits: "void*",
  });
  const threadPoolParams = koffi.struct({
    cpumask: koffi.array("bool", 512),
    n_threads: "int32",
    prio: "int32",
    poll: "uint32",
    strict_cpu: "bool",
    paused: "bool",
  });
  return { modelParams, contextParams, batch, threadPoolParams };
}

function bindV050(library: LibraryHandle): LlamaFunctions {
  const { modelParams, contextParams, batch } = structsV050();
  // Declares each C function; its argument types must match the JS signature in LlamaFunctions.
  const bind = <F>(name: string, result: Type, args: Type[]) => library.func(`llama_${name}`, result, args) as F;
  type Of<K extends keyof LlamaFunctions> = LlamaFunctions[K];
  const pointer = "void*";
  return {
    backendInit: bind<Of<"backendInit">>("backend_init", "void", []),
    logSet: bind<Of<"logSet">>("log_set", "void", [pointer, pointer]),
    modelDefaultParams: bind<Of<"modelDefaultParams">>("model_default_params", modelParams, []),
    contextDefaultParams: bind<Of<"contextDefaultParams">>("context_default_params", contextParams, []),
    modelLoadFromFile: bind<Of<"modelLoadFromFile">>("model_load_from_file", pointer, ["str", modelParams]),
    modelFree: bind<Of<"modelFree">>("model_free", "void", [pointer]),
    initFromModel: bind<Of<"initFromModel">>("init_from_model", pointer, [pointer, contextParams]),
    free: bind<Of<"free">>("free", "void", [pointer]),
    modelGetVocab: bind<Of<"modelGetVocab">>("model_get_vocab", pointer, [pointer]),
    modelDescription: bind<Of<"modelDescription">>("model_desc", "int32", [pointer, pointer, "size_t"]),
    modelSize: bind<Of<"modelSize">>("model_size", "uint64", [pointer]),
    modelParameterCount: bind<Of<"modelParameterCount">>("model_n_params", "uint64", [pointer]),
    modelTrainedContext: bind<Of<"modelTrainedContext">>("model_n_ctx_train", "int32", [pointer]),
    modelLayerCount: bind<Of<"modelLayerCount">>("model_n_layer", "int32", [pointer]),
    modelHeadCount: bind<Of<"modelHeadCount">>("model_n_head", "int32", [pointer]),
    modelKvHeadCount: bind<Of<"modelKvHeadCount">>("model_n_head_kv", "int32", [pointer]),
    modelEmbeddingLength: bind<Of<"modelEmbeddingLength">>("model_n_embd", "int32", [pointer]),
    modelInputLength: bind<Of<"modelInputLength">>("model_n_embd_inp", "int32", [pointer]),
    modelOutputEmbeddingLength: bind<Of<"modelOutputEmbeddingLength">>("model_n_embd_out", "int32", [pointer]),
    modelScoreCount: bind<Of<"modelScoreCount">>("model_n_cls_out", "uint32", [pointer]),
    modelSlidingWindow: bind<Of<"modelSlidingWindow">>("model_n_swa", "int32", [pointer]),
    modelRopeType: bind<Of<"modelRopeType">>("model_rope_type", "int32", [pointer]),
    modelPredictionLayerCount: bind<Of<"modelPredictionLayerCount">>("model_n_layer_nextn", "int32", [pointer]),
    modelIsRecurrent: bind<Of<"modelIsRecurrent">>("model_is_recurrent", "bool", [pointer]),
    modelIsHybrid: bind<Of<"modelIsHybrid">>("model_is_hybrid", "bool", [pointer]),
    modelIsDiffusion: bind<Of<"modelIsDiffusion">>("model_is_diffusion", "bool", [pointer]),
    modelHasEncoder: bind<Of<"modelHasEncoder">>("model_has_encoder", "bool", [pointer]),
    modelMetadata: bind<Of<"modelMetadata">>("model_meta_val_str", "int32", [pointer, "str", pointer, "size_t"]),
    vocabTokenCount: bind<Of<"vocabTokenCount">>("vocab_n_tokens", "int32", [pointer]),
    vocabIsEndOfGeneration: bind<Of<"vocabIsEndOfGeneration">>("vocab_is_eog", "bool", [pointer, "int32"]),
    tokenize: bind<Of<"tokenize">>("tokenize", "int32", [pointer, "str", "int32", pointer, "int32", "bool", "bool"]),
    batchInit: bind<Of<"batchInit">>("batch_init", batch, ["int32", "int32", "int32"]),
    batchFree: bind<Of<"batchFree">>("batch_free", "void", [batch]),
    decode: bind<Of<"decode">>("decode", "int32", [pointer, batch]),
    getLogits: bind<Of<"getLogits">>("get_logits", pointer, [pointer]),
    setEmbeddings: bind<Of<"setEmbeddings">>("set_embeddings", "void", [pointer, "bool"]),
    setCausal: bind<Of<"setCausal">>("set_causal_attn", "void", [pointer, "bool"]),
    getEmbeddings: bind<Of<"getEmbeddings">>("get_embeddings", pointer, [pointer]),
    getPooled: bind<Of<"getPooled">>("get_embeddings_seq", pointer, [pointer, "int32"]),
    getMemory: bind<Of<"getMemory">>("get_memory", pointer, [pointer]),
    memoryRemove: bind<Of<"memoryRemove">>("memory_seq_rm", "bool", [pointer, "int32", "int32", "int32"]),
    memoryCopy: bind<Of<"memoryCopy">>("memory_seq_cp", "void", [pointer, "int32", "int32", "int32", "int32"]),
    stateSize: bind<Of<"stateSize">>("state_seq_get_size", "size_t", [pointer, "int32"]),
    stateGet: bind<Of<"stateGet">>("state_seq_get_data", "size_t", [pointer, pointer, "size_t", "int32"]),
    stateSet: bind<Of<"stateSet">>("state_seq_set_data", "size_t", [pointer, pointer, "size_t", "int32"]),
    adapterLoad: bind<Of<"adapterLoad">>("adapter_lora_init", pointer, [pointer, "str"]),
    adapterFree: bind<Of<"adapterFree">>("adapter_lora_free", "void", [pointer]),
    setAdapters: bind<Of<"setAdapters">>("set_adapters_lora", "int32", [pointer, pointer, "size_t", pointer]),
    synchronize: bind<Of<"synchronize">>("synchronize", "void", [pointer]),
    attachThreads: bind<Of<"attachThreads">>("attach_threadpool", "void", [pointer, pointer, pointer]),
    prediction: () => bindPrediction(library),
  };
}
