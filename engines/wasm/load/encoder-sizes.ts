// Sizes of an encoder: the number of tokens that it computes in one pass. A whole sequence must fit in one pass, and
// scratch memory grows with the tokens of a pass. Only arithmetic, no side effects.
import { ServerError } from "../../../runtime/errors.ts";
import type { Capacity, ModelSpec } from "../../engine.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import { partialTail } from "../threads/thread-memory.ts";

/** Settings that limit an encoder's sizes. */
export type EncoderLimits = Pick<ModelSpec, "maxSequences" | "maxBatchTokens" | "maxModelLength" | "blockTokens">;

export interface EncoderSizes {
  readonly capacity: Capacity;
  /**
   * Maximum number of tokens in a pass: the length of the longest sequence or `sharedPassTokens`, whichever is larger.
   */
  readonly passTokens: number;
  readonly maxRows: number;
  /** Number of KV pages that each thread needs for a pass. */
  readonly pagesPerThread: number;
}

/**
 * Maximum number of tokens in a pass with several sequences. Larger passes would be only slightly faster and use more
 * CPU cache.
 */
export const sharedPassTokens = 256;
/** Maximum number of scratch bytes for a pass in the memory of one thread. */
const longestScratchBytes = 2 ** 30;
const floatBytes = 4;

/** Computes an encoder's sizes. Throws `unsupported` if not even one token fits. */
export function encoderSizes(spec: EncoderLimits, shape: Hyperparameters, threads: number): EncoderSizes {
  const { maxSequences, maxBatchTokens, maxModelLength, blockTokens } = spec;
  const { trainedContext } = shape;
  const longest = Math.floor(longestScratchBytes / (scratchFloats(shape, threads) * floatBytes));
  const sequenceTokens = Math.min(maxModelLength ?? trainedContext, trainedContext, maxBatchTokens, longest);
  if (sequenceTokens < 1) {
    const message = `the model's hidden states are too wide for the wasm engine with ${threads} threads: lower threads`;
    throw new ServerError("unsupported", message, { param: "threads" });
  }
  const passTokens = Math.max(sequenceTokens, Math.min(sharedPassTokens, maxBatchTokens, longest));
  const maxRows = Math.min(maxSequences, passTokens, sharedPassTokens);
  const capacity = {
    maxSequences,
    maxBatchTokens,
    sequenceTokens,
    maxLogitsRows: maxSequences,
    blockTokens,
    kvBlocks: Math.ceil(sequenceTokens / blockTokens) * maxSequences,
  };
  // On each thread, the last page of every sequence may be nearly empty, so each row (a sequence of the pass) needs one
  // more page.
  const pagesPerThread = Math.ceil(passTokens / blockTokens / threads) + maxRows;
  return { capacity, passTokens, maxRows, pagesPerThread };
}

/**
 * Returns the bytes that a pass needs in addition to the weights, summed over the memories of all threads. Throws
 * `unsupported` if not even one token fits.
 */
export function passBytes(spec: EncoderLimits, shape: Hyperparameters, threads: number): number {
  const { passTokens, pagesPerThread } = encoderSizes(spec, shape, threads);
  const pageTokens = pagesPerThread * spec.blockTokens;
  const kvFloats = 2 * shape.kvHeads * shape.headLength;
  return threads * (passTokens * scratchFloats(shape, threads) + pageTokens * kvFloats) * floatBytes;
}

/**
 * Returns an upper bound of the number of scratch floats (thread-memory.ts) for one token of a pass. The bound includes
 * one slab (results of one thread) per thread.
 */
function scratchFloats(shape: Hyperparameters, threads: number): number {
  const { width, heads, kvHeads, headLength, feedForward, rotated, ropes, experts } = shape;
  const attended = heads * headLength;
  const projected = attended + 2 * kvHeads * headLength;
  const routed = experts === null ? 0 : experts.used * experts.feedForward;
  const widest = Math.max(width, projected, feedForward, routed);
  const slab = Math.max(width, heads * (headLength + partialTail), Math.ceil(widest / threads) + headLength * 16);
  return 4 * widest + (threads + 1) * slab + rotated * ropes.length + 2 * kvHeads * headLength;
}
