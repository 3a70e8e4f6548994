// Feed-forward: the dense feed-forward step on one compute thread. The input rows stay unchanged.
import type { DividedFeedForward } from "../plan/partition-plan.ts";
import { activationNumbers, multiplyAtSite, type StepParts, type StepRunner } from "./step-runner.ts";

export class FeedForward implements StepRunner<DividedFeedForward> {
  readonly #parts: StepParts;

  constructor(parts: StepParts) {
    this.#parts = parts;
  }

  run(step: DividedFeedForward, n: number): void {
    const { plan, at, products } = this.#parts;
    const { up, down, site, postNorm, factor } = step;
    if (step.gate) this.#multiplyGated(step, step.gate, n);
    else this.#multiplyPlain(step, n);
    products.gather(up, n);
    products.join(up, n);
    const inner = { site: site + 1, x: at.joined, columns: plan.shape.feedForward, n };
    multiplyAtSite(this.#parts, products.own(down), inner, products.ownSlab);
    products.addToHidden(down, n, postNorm, factor);
  }

  /**
   * Computes activation(gate(x)) * up(x) for this thread's rows. Gate and up have the same number of rows, so their
   * rows are divided among the threads in the same way.
   */
  #multiplyGated(
    { up, site, activation }: DividedFeedForward,
    gate: NonNullable<DividedFeedForward["gate"]>,
    n: number,
  ) {
    const { plan, kernels, at, products, adapters } = this.#parts;
    const { input, gated } = at;
    const { ownSlab } = products;
    const { width } = plan.shape;
    adapters?.reduce(site, input);
    const prepared = products.multiply(products.own(gate), input, width, n, ownSlab);
    products.multiply(products.own(up), input, width, n, gated, prepared);
    adapters?.gather();
    adapters?.add(site, products.own(gate), ownSlab);
    adapters?.add(site, products.own(up), gated);
    kernels.gate(activationNumbers[activation], ownSlab, gated, ownSlab, n * products.own(gate).stride);
  }

  #multiplyPlain({ up, site, activation }: DividedFeedForward, n: number): void {
    const { plan, kernels, at, products } = this.#parts;
    const { ownSlab } = products;
    const own = products.own(up);
    multiplyAtSite(this.#parts, own, { site, x: at.input, columns: plan.shape.width, n }, ownSlab);
    kernels.activate(activationNumbers[activation], ownSlab, ownSlab, n * own.stride);
  }
}
