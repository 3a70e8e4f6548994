// Feed-forward: the dense feed-forward step on one compute thread. The input rows stay unchanged.
import type { DividedFeedForward } from "../plan/partition-plan.ts";
import { activationNumbers, multiplyPlace, type StepParts, type StepRunner } from "./step-runner.ts";

export class FeedForward implements StepRunner<DividedFeedForward> {
  readonly #parts: StepParts;

  constructor(parts: StepParts) {
    this.#parts = parts;
  }

  run(step: DividedFeedForward, n: number): void {
    const { blueprint, at, products } = this.#parts;
    const { up, down, place, postNorm } = step;
    if (step.gate) this.#multiplyGated(step, step.gate, n);
    else this.#multiplyPlain(step, n);
    products.exchange(up, n);
    products.join(up, n);
    const inner = { place: place + 1, x: at.joined, columns: blueprint.shape.feedForward, n };
    multiplyPlace(this.#parts, products.own(down), inner, products.ownSlab);
    products.addToHidden(down, n, postNorm);
  }

  /** Gate and up have equally many rows, so they are divided alike. */
  #multiplyGated(
    { up, place, activation }: DividedFeedForward,
    gate: NonNullable<DividedFeedForward["gate"]>,
    n: number,
  ) {
    const { blueprint, kernels, at, products, adapters } = this.#parts;
    const { input, gated } = at;
    const { ownSlab } = products;
    const { width } = blueprint.shape;
    adapters?.reduce(place, input);
    const prepared = products.multiply(products.own(gate), input, width, n, ownSlab);
    products.multiply(products.own(up), input, width, n, gated, prepared);
    adapters?.exchange();
    adapters?.add(place, products.own(gate), ownSlab);
    adapters?.add(place, products.own(up), gated);
    kernels.gate(activationNumbers[activation], ownSlab, gated, ownSlab, n * products.own(gate).stride);
  }

  #multiplyPlain({ up, place, activation }: DividedFeedForward, n: number): void {
    const { blueprint, kernels, at, products } = this.#parts;
    const { ownSlab } = products;
    const own = products.own(up);
    multiplyPlace(this.#parts, own, { place, x: at.input, columns: blueprint.shape.width, n }, ownSlab);
    kernels.activate(activationNumbers[activation], ownSlab, ownSlab, n * own.stride);
  }
}
