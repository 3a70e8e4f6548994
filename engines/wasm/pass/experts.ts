// Experts: the mixture-of-experts step on one compute thread. All threads choose the same experts for every token. Each
// thread then multiplies its own rows of all chosen experts. Therefore all threads have the same load, even if most
// tokens choose the same experts. The input rows stay unchanged.

import type { Hyperparameters } from "../graph/shape.ts";
import type { DividedExperts, Share } from "../plan/partition-plan.ts";
import { ExpertRouting, expertTokens } from "./expert-routing.ts";
import { activationNumbers, type StepParts, type StepRunner } from "./step-runner.ts";

const floatBytes = 4;

export class Experts implements StepRunner<DividedExperts> {
  readonly #parts: StepParts;
  readonly #floats: Float32Array;
  readonly #used: number;
  readonly #feedForward: number;
  /** Maximum number of tokens computed at a time. */
  readonly #tokens: number;
  readonly #routing: ExpertRouting;

  /** `floats`: a view of the whole memory of this thread. */
  constructor(parts: StepParts, experts: NonNullable<Hyperparameters["experts"]>, floats: Float32Array) {
    const { count, used, feedForward } = experts;
    this.#parts = parts;
    this.#floats = floats;
    this.#used = used;
    this.#feedForward = feedForward;
    this.#tokens = expertTokens({ experts }, parts.plan.passTokens);
    this.#routing = new ExpertRouting({ count, used, tokens: this.#tokens });
  }

  run(step: DividedExperts, n: number): void {
    for (let first = 0; first < n; first += this.#tokens)
      this.#runTokens(step, first, Math.min(this.#tokens, n - first));
  }

  #runTokens(step: DividedExperts, first: number, n: number): void {
    const { plan, at, products } = this.#parts;
    const x = at.input + first * plan.shape.width * floatBytes;
    this.#route(step, x, n);
    this.#enter(step, x, n);
    products.gather(step.up, n * this.#used);
    products.join(step.up, n * this.#used);
    this.#leave(step, n);
    products.addToHidden(step.down, n, null, 1, first);
  }

  #route({ router, normalised }: DividedExperts, x: number, n: number): void {
    const { plan, at, products } = this.#parts;
    products.multiply(products.own(router), x, plan.shape.width, n, products.ownSlab);
    products.gather(router, n);
    products.join(router, n);
    this.#routing.route(this.#floats, at.joined >>> 2, n, normalised);
  }

  /**
   * Computes this thread's part of the inner state of every row, and writes it to the thread's slab (its results). The
   * rows of gate and up are divided among the threads in the same way.
   */
  #enter({ gate, up, activation }: DividedExperts, x: number, n: number): void {
    const { plan, kernels, at, products } = this.#parts;
    const { width } = plan.shape;
    const { ownSlab } = products;
    const { stride } = products.own(up);
    const routing = this.#routing;
    let prepared = -1;
    for (let i = 0; i < routing.takenCount; i++) {
      const expert = routing.taken[i] as number;
      const count = routing.rowCountOf(expert);
      const offset = routing.firstRowOf(expert) * stride * floatBytes;
      // If all tokens use an expert, its input is `x` itself. If all tokens also use the next expert, the activations
      // prepared from `x` are reused for that expert. With a single token, this applies to all chosen experts.
      const isAll = count === n;
      const rows = isAll ? x : this.#gather(x, expert);
      const own = isAll ? prepared : -1;
      const multiply = (shares: readonly Share[], out: number, preparedAs: number) =>
        products.multiply(products.own(shares), rows, width, count, out + offset, preparedAs, expert);
      const current = gate === null ? own : multiply(gate, ownSlab, own);
      const last = multiply(up, gate === null ? ownSlab : at.gated, current);
      prepared = isAll ? last : -1;
    }
    const [number, floats] = [activationNumbers[activation], n * this.#used * stride];
    if (gate === null) kernels.activate(number, ownSlab, ownSlab, floats);
    else kernels.gate(number, ownSlab, at.gated, ownSlab, floats);
  }

  #gather(x: number, expert: number): number {
    const { plan, kernels, at } = this.#parts;
    const { width } = plan.shape;
    const bytes = width * floatBytes;
    const first = this.#routing.firstRowOf(expert);
    for (let i = 0; i < this.#routing.rowCountOf(expert); i++) {
      const from = x + (this.#routing.rowToken[first + i] as number) * bytes;
      kernels.copyRows(from, width, at.gathered + i * bytes, width, 1, width);
    }
    return at.gathered;
  }

  /**
   * Computes this thread's rows of the weighted sum over each token's experts, and writes them to the thread's slab
   * (its results). The experts are added in ascending order.
   */
  #leave({ down }: DividedExperts, n: number): void {
    const { kernels, at, products } = this.#parts;
    const { ownSlab } = products;
    const share = products.own(down);
    const bytes = share.stride * floatBytes;
    const routing = this.#routing;
    this.#floats.fill(0, ownSlab >>> 2, (ownSlab >>> 2) + n * share.stride);
    for (let i = 0; i < routing.takenCount; i++) {
      const expert = routing.taken[i] as number;
      const first = routing.firstRowOf(expert);
      const count = routing.rowCountOf(expert);
      const inner = at.joined + first * this.#feedForward * floatBytes;
      products.multiply(share, inner, this.#feedForward, count, at.gated, -1, expert);
      for (let row = 0; row < count; row++) {
        const to = ownSlab + (routing.rowToken[first + row] as number) * bytes;
        kernels.addScaledRow(at.gated + row * bytes, to, share.stride, routing.rowWeight[first + row] as number);
      }
    }
  }
}
