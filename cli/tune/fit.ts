// Fit: estimates the memory that a tuning candidate needs when it is loaded, and the context length and number of sequences for
// which the memory of the machine suffices. The sizes of the KV cache follow the same rules as the engines
// (engines/decoding/kv/kv-budget.ts).
import type { TuneFit } from "../../actors/api/tuning.ts";
import { allocatedTokens } from "../../engines/decoding/kv/kv-budget.ts";
import type { EngineName } from "../../engines/engine.ts";
import { roomBytes } from "../../engines/wasm/load/fit.ts";
import type { ModelSizes } from "./model-sizes.ts";

/** Memory of the device that runs the model. */
export interface DeviceMemory {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** Free main memory in bytes, if the device is a GPU; null if the device is the CPU. */
  readonly mainFreeBytes: number | null;
}

export interface FitQuestion {
  readonly engine: EngineName;
  readonly threads: number;
  /** Memory of the weights in bytes, including copies that an engine makes in other layouts. */
  readonly weightBytes: number;
  readonly sizes: ModelSizes;
  readonly memory: DeviceMemory;
  /** Values that the user has set; null if the tuning may choose them. */
  readonly maxSequences: number | null;
  readonly maxModelLength: number | null;
  readonly maxBatchTokens: number;
  readonly bytesPerKvElement: number;
}

export interface Fit {
  readonly status: TuneFit;
  readonly maxSequences: number;
  /** Maximum length of a sequence in tokens. */
  readonly contextTokens: number;
  /** Size of the KV cache in tokens, for all sequences together. */
  readonly kvTokens: number;
  readonly memoryBytes: number;
}

/** Fraction of the free memory that may be used. The rest is for requests, caches and other programs. */
export const usableShare = 0.9;
/** Fraction of the free memory for the KV cache, as in a server without a configured KV size. */
const kvShare = 0.25;
const sequenceCounts = [32, 16, 8, 4, 2, 1];
/**
 * Desired context length in tokens. Of the numbers of sequences at which each sequence gets this length, the highest is chosen.
 */
const usefulContext = 4096;
const leastContext = 256;
const contextStep = 256;

export function fitOf(question: FitQuestion): Fit {
  const { sizes, memory, maxModelLength, weightBytes } = question;
  const wanted = Math.min(maxModelLength ?? Number.POSITIVE_INFINITY, sizes.trainedContext || usefulContext);
  const usable = memory.freeBytes * usableShare;
  const bytesPerToken = sizes.kvElements * question.bytesPerKvElement;
  const counts = question.maxSequences === null ? sequenceCounts : [question.maxSequences];
  let best: Fit | null = null;
  for (const maxSequences of counts) {
    const otherBytes = weightBytes + scratchBytes(question, maxSequences);
    const kvBytes = Math.min(usable - otherBytes, memory.freeBytes * kvShare, kvRoom(question));
    const fit = sizes.isEncoder
      ? encoderFit(question, wanted, maxSequences, otherBytes)
      : sized(question, { wanted, maxSequences, otherBytes, tokens: kvBytes / bytesPerToken, bytesPerToken });
    if (otherBytes <= usable && fit.contextTokens >= Math.min(wanted, usefulContext)) return { ...fit, status: "fits" };
    if (otherBytes <= usable && fit.contextTokens >= Math.min(wanted, leastContext)) best = { ...fit, status: "fits" };
  }
  if (best !== null) return best;
  const smallest = counts.at(-1) ?? 1;
  const otherBytes = weightBytes + scratchBytes(question, smallest);
  const least = Math.min(wanted, leastContext);
  const needed = otherBytes + least * bytesPerToken;
  const all = (memory.freeBytes + (memory.mainFreeBytes ?? 0)) * usableShare;
  const status = memory.mainFreeBytes !== null && needed <= all ? "hybrid" : "too-large";
  return { status, maxSequences: smallest, contextTokens: 0, kvTokens: 0, memoryBytes: needed };
}

interface Sizing {
  readonly wanted: number;
  readonly maxSequences: number;
  readonly otherBytes: number;
  /** Number of tokens in the KV cache for which there is memory. */
  readonly tokens: number;
  readonly bytesPerToken: number;
}

/**
 * Returns the sizes (number of sequences, context length, KV cache) that fit into the memory, for a model with a KV cache. On a
 * CPU, llama.cpp reserves an equal part of the KV cache for each sequence. Otherwise, all sequences share one pool.
 */
function sized({ engine, memory }: FitQuestion, sizing: Sizing): Omit<Fit, "status"> {
  const { wanted, maxSequences, otherBytes, tokens, bytesPerToken } = sizing;
  const isShared = engine === "wasm" || memory.mainFreeBytes !== null;
  const own = isShared ? tokens : tokens / maxSequences;
  const contextTokens = Math.max(0, Math.min(wanted, Math.floor(own / contextStep) * contextStep));
  const kvTokens = isShared
    ? Math.max(0, Math.min(Math.floor(tokens / contextStep) * contextStep, allocatedTokens(wanted) * maxSequences))
    : allocatedTokens(contextTokens) * maxSequences;
  return { maxSequences, contextTokens, kvTokens, memoryBytes: otherBytes + kvTokens * bytesPerToken };
}

/**
 * Returns the sizes (number of sequences, context length) that fit into the memory, for an encoder. An encoder has no KV cache,
 * and computes a sequence in one forward pass.
 */
function encoderFit(
  { maxBatchTokens }: FitQuestion,
  wanted: number,
  maxSequences: number,
  otherBytes: number,
): Omit<Fit, "status"> {
  return { maxSequences, contextTokens: Math.min(wanted, maxBatchTokens), kvTokens: 0, memoryBytes: otherBytes };
}

/**
 * Returns the number of bytes for the KV cache that fit into the WASM memories of the wasm engine's threads, besides the
 * weights. Infinity for the llama engine.
 */
function kvRoom({ engine, threads, weightBytes }: FitQuestion): number {
  return engine === "wasm" ? roomBytes(threads) - weightBytes : Number.POSITIVE_INFINITY;
}

const megabyte = 1e6;
const floatBytes = 4;

/**
 * Returns the memory in bytes in addition to weights and KV cache: buffers of a forward pass, logits, and the engine's code and
 * threads. The constants are fitted to measured loads (bench/results/tune.md).
 */
export function scratchBytes({ engine, threads, sizes, maxBatchTokens }: FitQuestion, maxSequences: number): number {
  const { width, feedForward, vocabSize } = sizes;
  const extraRows = 16;
  const logits = sizes.isEncoder ? 0 : (maxSequences + extraRows) * vocabSize * floatBytes;
  if (engine === "wasm") {
    const pass = 64 * threads * (6 * width + 3 * feedForward) * floatBytes;
    return (22 + 4 * threads) * megabyte + pass + logits;
  }
  const pass = Math.min(512, maxBatchTokens + maxSequences) * (8 * width + 3 * feedForward) * floatBytes;
  return 18 * megabyte + pass + logits;
}
