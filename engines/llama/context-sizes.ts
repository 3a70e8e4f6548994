// Owns how a context is sized: what llama.cpp is asked for, and how much of it the scheduler may use. Pure arithmetic on
// what the spec wants, the model is, and the machine has.
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

/** How sequences lie in memory: each in a stream of its own, all in one pool, or nowhere (encoders). */
export type MemoryMode = "streams" | "unified" | "none";

export interface ContextSizes {
  readonly mode: MemoryMode;
  readonly capacity: Capacity;
  readonly kvCacheBytes: number;
  /** Tokens of all sequences together. */
  readonly contextTokens: number;
  readonly sequences: number;
  /** Most tokens of a call, and of what is computed at once. */
  readonly batchTokens: number;
  readonly passTokens: number;
  readonly maxOutputs: number;
}

/** LLAMA_MAX_SEQ of the known release. */
export const maxNativeSequences = 256;
/** Rows llama.cpp computes in one pass; larger chunks are cut by it. */
const physicalBatchTokens = 512;
/** Tokens of a pass that gives hidden states: each costs the logits of the whole vocabulary. */
const pooledPassTokens = 64;
/** llama.cpp makes a pool in steps of this many tokens. */
const poolStep = 256;
/** What a pool of no given size has beyond what all slots can fill: room for copies. */
const copiesShare = 0.25;

export function contextSizes(spec: ModelSpec, traits: ModelTraits, memory: KvMemory): ContextSizes {
  if (spec.maxSequences > maxNativeSequences) {
    const message = `max_seqs ${spec.maxSequences} is more than llama.cpp's ${maxNativeSequences} sequences; lower it`;
    throw new ServerError("config_invalid", message, { param: "max_seqs" });
  }
  if (traits.isEncoder) return encoderSizes(spec, traits);
  // A GPU computes a pool as fast as streams. Models that cannot share cells have no use for a pool.
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
  // Filler rows come on top of what the scheduler asks for.
  const batchTokens = maxBatchTokens + maxSequences;
  return {
    capacity: { maxSequences, maxBatchTokens, sequenceTokens, maxLogitsRows, blockTokens, kvBlocks },
    batchTokens,
    passTokens: Math.min(physicalBatchTokens, batchTokens),
    // The library insists on one a native sequence.
    maxOutputs: Math.max(maxLogitsRows, maxSequences + 1, pooledPassTokens),
  };
}

/** An encoder looks at a whole sequence at once, and remembers none. */
function encoderSizes(spec: ModelSpec, { kv }: ModelTraits): ContextSizes {
  const { maxSequences, maxBatchTokens, blockTokens } = spec;
  const sequenceTokens = Math.min(spec.maxModelLength ?? kv.trainedContext, kv.trainedContext, maxBatchTokens);
  const wanted = Math.max(sequenceTokens, Math.min(physicalBatchTokens, maxBatchTokens));
  // llama.cpp plans for as many tokens of each sequence, and aborts where that is more than a pass has and it takes means.
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
