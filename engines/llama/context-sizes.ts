// Context sizes: what to request from llama.cpp, and how much of it the scheduler may use. Pure arithmetic on the spec,
// the model's traits and the machine's memory.
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

/** Layout of the sequences in memory: a stream each, one shared pool, or none (encoders). */
export type MemoryMode = "streams" | "unified" | "none";

export interface ContextSizes {
  readonly mode: MemoryMode;
  readonly capacity: Capacity;
  readonly kvCacheBytes: number;
  /** KV cache size in tokens, all sequences together. */
  readonly contextTokens: number;
  readonly sequences: number;
  /** Upper bounds in tokens: of one llama_decode call, and of one physical batch. */
  readonly batchTokens: number;
  readonly passTokens: number;
  readonly maxOutputs: number;
}

/** LLAMA_MAX_SEQ of the supported release. */
export const maxNativeSequences = 256;
/** Tokens of one physical batch; llama.cpp splits larger chunks. */
const physicalBatchTokens = 512;
/** Tokens of a pass with hidden states: llama.cpp also computes the logits of the whole vocabulary for each of them. */
const pooledPassTokens = 64;
/** llama.cpp rounds a pool up to a multiple of this many tokens. */
const poolStep = 256;
/** Room for copies in a pool without a configured size, as a fraction of what all slots can fill. */
const copiesShare = 0.25;

export function contextSizes(spec: ModelSpec, traits: ModelTraits, memory: KvMemory): ContextSizes {
  if (spec.maxSequences > maxNativeSequences) {
    const message = `max_seqs is ${spec.maxSequences}; llama.cpp has at most ${maxNativeSequences} sequences: lower it`;
    throw new ServerError("config_invalid", message, { param: "max_seqs" });
  }
  if (traits.isEncoder) return encoderSizes(spec, traits);
  // A GPU computes a pool as fast as streams. A model that cannot share cells gains nothing from a pool.
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
  // Filler rows are added to the scheduler's rows.
  const batchTokens = maxBatchTokens + maxSequences;
  return {
    capacity: { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows, blockTokens, kvBlocks },
    batchTokens,
    passTokens: Math.min(physicalBatchTokens, batchTokens),
    // The library requires at least one output per native sequence.
    maxOutputs: Math.max(maxLogitsRows, maxSequences + 1, pooledPassTokens),
  };
}

/** An encoder attends to a whole sequence at once and keeps no state. */
function encoderSizes(spec: ModelSpec, { kv }: ModelTraits): ContextSizes {
  const { maxSequences, maxBatchTokens, blockTokens } = spec;
  const sequenceTokens = Math.min(spec.maxModelLength ?? kv.trainedContext, kv.trainedContext, maxBatchTokens);
  const wanted = Math.max(sequenceTokens, Math.min(physicalBatchTokens, maxBatchTokens));
  // llama.cpp plans for an equal number of tokens per sequence. With mean pooling it aborts if the total exceeds a
  // pass.
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
