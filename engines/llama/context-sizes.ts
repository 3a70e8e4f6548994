// Context sizes: computes the sizes to request from llama.cpp when a context is opened, and the capacity that the
// scheduler may use. Inputs are the spec, the model's traits and the machine's memory; there are no side effects.
import { ServerError } from "../../runtime/errors.ts";
import {
  allocatedTokens,
  budgetTokens,
  type KvMemory,
  kvBytesPerToken,
  tokensPerSequence,
} from "../decoding/kv/kv-budget.ts";
import type { Capacity, ModelSpec } from "../engine.ts";
import { nativeSequences } from "./kv/kv-unified.ts";
import type { ModelTraits } from "./model-traits.ts";

/** Memory layout of the sequences: one stream per sequence, one pool shared by all, or no KV memory (encoders). */
export type MemoryMode = "streams" | "unified" | "none";

export interface ContextSizes {
  readonly mode: MemoryMode;
  readonly capacity: Capacity;
  readonly kvCacheBytes: number;
  /** Size of the KV cache in tokens, for all sequences together. */
  readonly contextTokens: number;
  readonly sequences: number;
  /** Maximum number of tokens in one llama_decode call. `passTokens`: maximum number in one physical batch. */
  readonly batchTokens: number;
  readonly passTokens: number;
  readonly maxOutputs: number;
}

/** Maximum number of sequences: LLAMA_MAX_SEQ of the supported release. */
export const maxNativeSequences = 256;
/** Number of tokens in a physical batch; llama.cpp splits larger batches. */
const physicalBatchTokens = 512;
/**
 * Maximum number of tokens in a pass with hidden states. It is small, because llama.cpp also computes the logits of the
 * whole vocabulary for each of these tokens.
 */
const pooledPassTokens = 64;
/** llama.cpp rounds the size of a pool up to a multiple of this number of tokens. */
const poolStep = 256;
/**
 * Additional pool memory for saved copies of sequences, as a fraction of the memory for all slots. Used only if no KV
 * budget is configured.
 */
const copiesShare = 0.25;

export function contextSizes(spec: ModelSpec, traits: ModelTraits, memory: KvMemory): ContextSizes {
  if (spec.maxSequences > maxNativeSequences) {
    const message = `max_seqs is ${spec.maxSequences}; llama.cpp has at most ${maxNativeSequences} sequences: lower it`;
    throw new ServerError("config_invalid", message, { param: "max_seqs" });
  }
  if (traits.isEncoder) return encoderSizes(spec, traits);
  // By default only a GPU uses one pool of KV cells for all sequences; a CPU is faster with one stream (KV memory) per
  // sequence. A model that cannot drop the last tokens of a sequence gets no pool, because it cannot share cells either.
  const isPool = (spec.pagedKv ?? memory.gpuBytes !== null) && traits.rollsBack;
  return isPool ? unifiedSizes(spec, traits, memory) : streamsSizes(spec, traits, memory);
}

function streamsSizes(spec: ModelSpec, { kv }: ModelTraits, { freeBytes, gpuBytes }: KvMemory): ContextSizes {
  const { maxSequences, blockTokens } = spec;
  const sequenceTokens = tokensPerSequence(spec, kv, freeBytes, gpuBytes);
  return {
    mode: "streams",
    ...generating(spec, sequenceTokens, Math.ceil(sequenceTokens / blockTokens) * maxSequences),
    kvCacheBytes: kvBytesPerToken(kv) * allocatedTokens(sequenceTokens) * maxSequences,
    contextTokens: sequenceTokens * maxSequences,
    sequences: maxSequences,
  };
}

function unifiedSizes(spec: ModelSpec, { kv }: ModelTraits, memory: KvMemory): ContextSizes {
  const { maxSequences, blockTokens, kvBudget } = spec;
  const wanted = spec.maxModelLength ?? kv.trainedContext;
  const budget = budgetTokens(spec, kv, memory);
  const useful = kvBudget === null ? Math.ceil(wanted * maxSequences * (1 + copiesShare)) : budget;
  const contextTokens = Math.floor(Math.min(budget, allocatedTokens(useful)) / poolStep) * poolStep;
  const kvBlocks = Math.floor(contextTokens / blockTokens);
  if (kvBlocks === 0) {
    const least = Math.max(poolStep, blockTokens);
    const message =
      `the KV cache budget is ${budget} tokens; at least ${least} are needed ` +
      `(${kvBytesPerToken(kv)} bytes a token): raise kv_cache`;
    throw new ServerError("config_invalid", message, { param: "kv_cache" });
  }
  return {
    mode: "unified",
    ...generating(spec, Math.min(wanted, kvBlocks * blockTokens), kvBlocks),
    kvCacheBytes: kvBytesPerToken(kv) * contextTokens,
    contextTokens,
    sequences: nativeSequences(maxSequences, maxNativeSequences),
  };
}

function generating(spec: ModelSpec, sequenceTokens: number, kvBlocks: number) {
  const { maxSequences, maxBatchTokens, blockTokens } = spec;
  const maxLogitsRows = maxSequences + spec.extraLogitsRows;
  // The model may add padding tokens (filler tokens) to the scheduler's tokens, at most one per sequence.
  const batchTokens = maxBatchTokens + maxSequences;
  return {
    capacity: { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows, blockTokens, kvBlocks },
    batchTokens,
    // If the embeddings of an image tile attend to each other, all of them must be in one pass.
    passTokens: Math.max(
      Math.min(physicalBatchTokens, batchTokens),
      spec.images?.attendsAhead ? spec.images.tileTokens : 0,
    ),
    // llama.cpp requires at least one output per native sequence.
    maxOutputs: Math.max(maxLogitsRows, maxSequences + 1, pooledPassTokens),
  };
}

/** Returns the sizes for an encoder, which computes a whole sequence in one pass and keeps no state. */
function encoderSizes(spec: ModelSpec, { kv }: ModelTraits): ContextSizes {
  const { maxSequences, maxBatchTokens, blockTokens } = spec;
  const sequenceTokens = Math.min(spec.maxModelLength ?? kv.trainedContext, kv.trainedContext, maxBatchTokens);
  const wanted = Math.max(sequenceTokens, Math.min(physicalBatchTokens, maxBatchTokens));
  // The number of tokens in a pass is rounded up to a multiple of `maxSequences`, because llama.cpp assumes an equal
  // number of tokens per sequence. With mean pooling, llama.cpp aborts if the total exceeds the size of a pass.
  const passTokens = Math.ceil(wanted / maxSequences) * maxSequences;
  const kvBlocks = Math.ceil(sequenceTokens / blockTokens) * maxSequences;
  const maxLogitsRows = maxSequences;
  return {
    mode: "none",
    capacity: { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows, blockTokens, kvBlocks },
    kvCacheBytes: 0,
    contextTokens: passTokens,
    sequences: maxSequences,
    batchTokens: passTokens,
    passTokens,
    maxOutputs: Math.max(passTokens, maxSequences),
  };
}
