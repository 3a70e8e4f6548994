// Convolution module: a step of a conformer's layer on one compute thread.
import { activationNumbers, multiplyJoined, type StepRunner } from "../../pass/step-runner.ts";
import type { DividedConvolutionModule } from "../../plan/partition-plan.ts";
import { gatherTokens, type TokenParts, tokenRange } from "./token-ranges.ts";

export class ConvolutionModule implements StepRunner<DividedConvolutionModule> {
  readonly #parts: TokenParts;

  constructor(parts: TokenParts) {
    this.#parts = parts;
  }

  run(step: DividedConvolutionModule, n: number): void {
    const { plan, kernels, at, products, index } = this.#parts;
    const { width, epsilon } = plan.shape;
    const { ownSlab } = products;
    multiplyJoined(this.#parts, step.pointwise, { x: at.input, columns: width, n }, null);
    const { from, to } = tokenRange(index, plan.threads, n);
    this.#gate(Math.max(0, from - step.kernelLength + 1), to);
    this.#convolve(step, from, to);
    const { norm } = step;
    const weight = norm === null ? 0 : (at.weights.get(norm.weight.name) as number);
    if (norm) kernels.rmsNorm(ownSlab, width, weight, ownSlab, width, to - from, width, epsilon);
    kernels.activate(activationNumbers.silu, ownSlab, ownSlab, (to - from) * width);
    gatherTokens(this.#parts, n);
    products.multiply(products.own(step.output), at.input, width, n, ownSlab);
    products.addToHidden(step.output, n, null);
  }

  /** Multiplies the first half of the joined rows by the sigmoid of their second half. */
  #gate(from: number, to: number): void {
    const { plan, at, floats } = this.#parts;
    const { width } = plan.shape;
    for (let token = from; token < to; token++) {
      const row = (at.joined >>> 2) + token * 2 * width;
      for (let i = 0; i < width; i++) {
        const gate = floats[row + width + i] as number;
        floats[row + i] = (floats[row + i] as number) / (1 + Math.exp(-gate));
      }
    }
  }

  /** Writes the convolutions of the tokens to this thread's slab. Positions before the first token count as zeros. */
  #convolve({ kernel, kernelLength }: DividedConvolutionModule, from: number, to: number): void {
    const { plan, at, floats, products } = this.#parts;
    const { width } = plan.shape;
    const weights = (at.weights.get(kernel.name) as number) >>> 2;
    for (let token = from; token < to; token++) {
      const out = (products.ownSlab >>> 2) + (token - from) * width;
      const missing = Math.max(0, kernelLength - 1 - token);
      const first = (at.joined >>> 2) + (token - kernelLength + 1) * 2 * width;
      for (let i = 0; i < width; i++) {
        let sum = 0;
        for (let k = missing; k < kernelLength; k++)
          sum += (floats[weights + i * kernelLength + k] as number) * (floats[first + k * 2 * width + i] as number);
        floats[out + i] = sum;
      }
    }
  }
}
