// Sampler fixtures: both kernels by name, neutral settings, and seeded random rows.

import { ReferenceKernel } from "../../../../engines/decoding/sampler/reference-kernel.ts";
import type { RowKernel } from "../../../../engines/decoding/sampler/row-kernel.ts";
import { WasmKernel } from "../../../../engines/decoding/sampler/wasm-kernel.ts";
import type { Sampling } from "../../../../engines/generation.ts";

/** Every kernel that must pass the same tests. */
export const kernels: readonly { readonly name: string; create(vocabSize: number): RowKernel }[] = [
  { name: "reference kernel", create: (vocabSize) => new ReferenceKernel(vocabSize) },
  { name: "SIMD kernel", create: createSimd },
];

export function createSimd(vocabSize: number): WasmKernel {
  const kernel = WasmKernel.create(vocabSize);
  if (kernel === null) throw new Error("these tests need WebAssembly SIMD");
  return kernel;
}

/** Settings that change nothing: temperature 1 and all filters off. */
export const neutral: Sampling = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  dry: null,
  logitBias: [],
  seed: 1,
  topLogprobs: null,
};

export const noTokens = new Int32Array(0);

/** Returns logits whose softmax is `probabilities`. */
export function logitsOf(...probabilities: readonly number[]): Float32Array {
  return Float32Array.from(probabilities, (probability) => Math.log(probability));
}

/** Returns a mask over `vocabSize` tokens that allows only `tokens`. */
export function maskOf(vocabSize: number, tokens: Iterable<number>): Int32Array {
  const mask = new Int32Array(Math.ceil(vocabSize / 32));
  for (const token of tokens) mask[token >> 5]! |= 1 << (token & 31);
  return mask;
}

/** Returns a seeded source of uniform numbers that does not use the sampler's generator. */
export function createUniform(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
}

export function normal(uniform: () => number): number {
  return Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}
