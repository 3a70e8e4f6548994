// Sizes of an encoder: how many tokens it takes at once. A sequence must fit in one pass, and scratch memory grows with
// the tokens of a pass. Pure arithmetic.
import { ServerError } from "../../../runtime/errors.ts";
import type { Capacity, ModelSpec } from "../../engine.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import { partialTail } from "../threads/thread-memory.ts";

/** Settings that limit the sizes. */
export type EncoderLimits = Pick<ModelSpec, "maxSequences" | "maxBatchTokens" | "maxModelLength" | "blockTokens">;

export interface EncoderSizes {
  readonly capacity: Capacity;
  /** Tokens of the longest pass: of one sequence, or of as many as fit `sharedPassTokens`. */
  readonly passTokens: number;
  readonly maxRows: number;
  /** KV pages that each thread needs for a pass. */
  readonly pagesPerThread: number;
}

/** Tokens of a pass with several sequences. More would be hardly faster and take more cache. */
export const sharedPassTokens = 256;
/** Scratch memory of a pass in one thread's memory. */
const longestScratchBytes = 2 ** 30;
const floatBytes = 4;

/** Throws `unsupported` if not even a short text fits. */
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
  // A sequence's last page on each thread may be nearly empty.
  const pagesPerThread = Math.ceil(passTokens / blockTokens / threads) + maxRows;
  return { capacity, passTokens, maxRows, pagesPerThread };
}

/** Bytes that a pass needs beside the weights, in the memories of all threads together. Throws like encoderSizes(). */
export function passBytes(spec: EncoderLimits, shape: Hyperparameters, threads: number): number {
  const { passTokens, pagesPerThread } = encoderSizes(spec, shape, threads);
  const pageTokens = pagesPerThread * spec.blockTokens;
  const kvFloats = 2 * shape.kvHeads * shape.headLength;
  return threads * (passTokens * scratchFloats(shape, threads) + pageTokens * kvFloats) * floatBytes;
}

/** Upper bound of the scratch floats for one token of a pass (thread-memory.ts), including a slab for each thread. */
function scratchFloats(shape: Hyperparameters, threads: number): number {
  const { width, heads, kvHeads, headLength, feedForward, rotated, ropes } = shape;
  const attended = heads * headLength;
  const projected = attended + 2 * kvHeads * headLength;
  const widest = Math.max(width, projected, feedForward);
  const slab = Math.max(width, heads * (headLength + partialTail), Math.ceil(widest / threads) + headLength * 16);
  return 4 * widest + (threads + 1) * slab + rotated * ropes.length + 2 * kvHeads * headLength;
}
