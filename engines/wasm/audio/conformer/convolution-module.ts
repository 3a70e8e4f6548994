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
    const { width } = plan.shape;
    const { ownSlab } = products;
    multiplyJoined(this.#parts, step.pointwise, { x: at.input, columns: width, n }, null);
    const { from, to } = tokenRange(index, plan.threads, n);
    const behind = step.kernelLength - 1 - step.ahead;
    this.#gate(Math.max(0, from - behind), Math.min(n, to + step.ahead));
    for (let token = from; token < to; token++)
      this.#convolve(step, token, n, (ownSlab >>> 2) + (token - from) * width);
    if (step.norm) this.#norm(step.norm, to - from);
    kernels.activate(activationNumbers.silu, ownSlab, ownSlab, (to - from) * width);
    gatherTokens(this.#parts, n);
    products.multiply(products.own(step.output), at.input, width, n, ownSlab);
    products.addToHidden(step.output, n, null);
  }

  /** Multiplies the first half of the joined rows by the sigmoid of their second half (GLU). */
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

  /** Writes the depthwise convolution of a token to index `out` of `floats`. Positions outside of the n tokens count as zeros. */
  #convolve(
    { kernel, kernelLength, ahead, bias }: DividedConvolutionModule,
    token: number,
    n: number,
    out: number,
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width } = plan.shape;
    const weights = (at.weights.get(kernel.name) as number) >>> 2;
    const biases = bias && (at.weights.get(bias.name) as number) >>> 2;
    const first = token - (kernelLength - 1 - ahead);
    const row = (at.joined >>> 2) + first * 2 * width;
    const [from, to] = [Math.max(0, -first), Math.min(kernelLength, n - first)];
    for (let i = 0; i < width; i++) {
      let sum = biases === null ? 0 : (floats[biases + i] as number);
      for (let k = from; k < to; k++)
        sum += (floats[weights + i * kernelLength + k] as number) * (floats[row + k * 2 * width + i] as number);
      floats[out + i] = sum;
    }
  }

  /** Norms the first `count` rows of this thread's slab. */
  #norm({ of, norm }: NonNullable<DividedConvolutionModule["norm"]>, count: number): void {
    const { plan, kernels, at, products } = this.#parts;
    const { width, epsilon } = plan.shape;
    const { ownSlab } = products;
    const weight = at.weights.get(norm.weight.name) as number;
    if (of === "rms") {
      kernels.rmsNorm(ownSlab, width, weight, ownSlab, width, count, width, epsilon);
      return;
    }
    kernels.scaleColumns(ownSlab, width, count, weight, width);
    if (norm.bias) kernels.addVector(ownSlab, width, count, at.weights.get(norm.bias.name) as number, width);
  }
}
