// KV budget: converts the configured KV memory into a number of tokens per sequence, or into a pool that all sequences
// share.
import { ServerError } from "../../../runtime/errors.ts";
import type { ModelSpec } from "../../engine.ts";

export interface KvShape {
  readonly layers: number;
  /** Number of elements of one token's K and V in one layer. */
  readonly elementsPerLayer: number;
  readonly bytesPerElement: number;
  readonly trainedContext: number;
}

/** Fraction of the free memory that the KV cache uses if no budget is configured. Chosen by hand. */
const defaultShare = 0.25;
/** llama.cpp allocates the context of each sequence in multiples of this number of tokens. */
const contextStep = 256;

/** Bytes of KV of one token in all layers. */
export function kvBytesPerToken(shape: KvShape): number {
  return shape.layers * shape.elementsPerLayer * shape.bytesPerElement;
}

/** Number of tokens for which llama.cpp allocates KV if a sequence may have up to `tokens` tokens. */
export function allocatedTokens(tokens: number): number {
  return Math.ceil(tokens / contextStep) * contextStep;
}

/** Memory from which a KV cache is allocated. */
export interface KvMemory {
  readonly freeBytes: number;
  /** Total memory of the GPU; null: the cache is in main memory. */
  readonly gpuBytes: number | null;
}

/**
 * Total number of tokens of all sequences that fit into `spec.kvBudget`. Throws `config_invalid` if no memory is left.
 */
export function budgetTokens(spec: ModelSpec, shape: KvShape, memory: KvMemory): number {
  const budget = spec.kvBudget;
  if (budget !== null && "tokens" in budget) return budget.tokens;
  return Math.floor(budgetBytes(budget, memory) / kvBytesPerToken(shape));
}

function budgetBytes(budget: { bytes: number } | { fraction: number } | null, memory: KvMemory): number {
  const { freeBytes, gpuBytes } = memory;
  if (budget === null) return freeBytes * defaultShare;
  if ("bytes" in budget) return budget.bytes;
  if (gpuBytes === null) return freeBytes * budget.fraction;
  const usedBytes = gpuBytes - freeBytes;
  const leftBytes = gpuBytes * budget.fraction - usedBytes;
  if (leftBytes > 0) return leftBytes;
  throw new ServerError(
    "config_invalid",
    `gpu_memory_utilization expects more of the GPU's ${mebibytes(gpuBytes)} than is in use with the weights ` +
      `(${mebibytes(usedBytes)}); got ${budget.fraction}, which is ${mebibytes(gpuBytes * budget.fraction)}: raise it`,
    { param: "gpu_memory_utilization" },
  );
}

function mebibytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MiB`;
}

/**
 * Maximum number of tokens per sequence if `spec.maxSequences` sequences share the budget equally. The number is
 * limited to the configured length, or to the length the model was trained for if no length is configured. Throws
 * `config_invalid` if a share is smaller than `contextStep` tokens.
 */
export function tokensPerSequence(
  spec: ModelSpec,
  shape: KvShape,
  freeBytes: number,
  gpuBytes: number | null = null,
): number {
  const totalTokens = budgetTokens(spec, shape, { freeBytes, gpuBytes });
  const share = Math.floor(totalTokens / spec.maxSequences);
  const wanted = spec.maxModelLength ?? shape.trainedContext;
  const granted = Math.min(wanted, Math.floor(share / contextStep) * contextStep);
  if (granted > 0) return granted;
  throw tooSmallShare(totalTokens, spec.maxSequences, contextStep, shape);
}

/** KV memory that all sequences share. */
export interface KvPool {
  /** Number of blocks on each thread. Block b of every sequence is on thread b % threads. */
  readonly blocksPerThread: number;
  /**
   * Maximum number of tokens of one sequence: the configured length, or the model's length if none is configured. The
   * number is limited to the size of the pool; without paging, to an equal share of the pool, so that all sequences
   * always fit.
   */
  readonly sequenceTokens: number;
}

/**
 * Returns one pool for the whole budget, with a whole number of blocks on each of `threads` threads. Throws
 * `config_invalid` if a sequence of `contextStep` tokens (or of the maximum length if that is shorter) does not fit.
 */
export function kvPool(spec: ModelSpec, shape: KvShape, memory: KvMemory, threads = 1): KvPool {
  const { blockTokens, maxModelLength } = spec;
  const totalTokens = budgetTokens(spec, shape, memory);
  const wanted = maxModelLength ?? shape.trainedContext;
  const leastTokens = Math.min(wanted, contextStep);
  if (totalTokens < leastTokens) {
    throw new ServerError(
      "config_invalid",
      `the KV cache budget of ${totalTokens} tokens is too small for one sequence; at least ${leastTokens} are needed ` +
        `(${kvBytesPerToken(shape)} bytes a token): raise kv_cache`,
      { param: "kv_cache" },
    );
  }
  // The number of blocks is rounded down, unless the minimum number of tokens would then not fit.
  const blocksPerThread = Math.max(
    Math.floor(totalTokens / blockTokens / threads),
    Math.ceil(leastTokens / blockTokens / threads),
  );
  const ownBlocks = spec.pagedKv === false ? blocksPerThread / spec.maxSequences : blocksPerThread;
  const sequenceTokens = Math.min(wanted, Math.floor(ownBlocks) * threads * blockTokens);
  if (sequenceTokens < leastTokens) throw tooSmallShare(totalTokens, spec.maxSequences, leastTokens, shape);
  return { blocksPerThread, sequenceTokens };
}

function tooSmallShare(totalTokens: number, sequences: number, leastTokens: number, shape: KvShape): ServerError {
  const share = Math.floor(totalTokens / sequences);
  return new ServerError(
    "config_invalid",
    `the KV cache budget of ${totalTokens} tokens leaves ${share} for each of ${sequences} sequences; at least ` +
      `${leastTokens} are needed (${kvBytesPerToken(shape)} bytes a token): raise kv_cache or lower max_seqs`,
    { param: "kv_cache" },
  );
}
