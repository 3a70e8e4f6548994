// Pooler: turns the hidden states of a sequence into one vector, or into the scores of a scoring head. It runs between
// passes on the leader, which has all hidden states. It processes one sequence at a time, because its cost is
// negligible compared with the pass.

import type { GraphPooling, ScoringHead } from "../graph/graph-pooling.ts";
import type { Norm } from "../graph/graph-tensors.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { DividedGraph, Share } from "../plan/partition-plan.ts";
import type { ThreadMemory } from "../threads/thread-memory.ts";
import type { ThreadNorms } from "../threads/thread-norms.ts";
import type { ThreadProducts } from "../threads/thread-products.ts";
import { activationNumbers } from "./step-runner.ts";

const floatBytes = 4;

export interface PoolerParts {
  readonly kernels: KernelExports;
  readonly norms: ThreadNorms;
  readonly products: ThreadProducts;
  readonly at: ThreadMemory;
  readonly floats: Float32Array;
  readonly pooling: GraphPooling;
  readonly outputNorm: Norm | null;
  readonly shape: Pick<Hyperparameters, "width">;
  readonly scoring: DividedGraph["scoring"];
  readonly dense: DividedGraph["dense"];
}

export class Pooler {
  readonly #parts: PoolerParts;

  constructor(parts: PoolerParts) {
    this.#parts = parts;
  }

  /**
   * Pools `count` tokens of one sequence, from the pass's token `firstToken` on. For the pooling kind "mean", the sum of the tokens'
   * states is added to `out`. All other kinds overwrite `out`, so the last pass of a long sequence determines the result. For the kind
   * "tokens", `out` has the shape [count][pooling.length].
   */
  pool(firstToken: number, count: number, out: Float32Array): void {
    if (this.#parts.pooling.kind === "tokens") this.#poolTokens(firstToken, count, out);
    else {
      this.#pool(firstToken, count, out);
      if (this.#parts.dense.length > 0) this.#project(out);
    }
  }

  #pool(firstToken: number, count: number, out: Float32Array): void {
    const { pooling, floats, shape } = this.#parts;
    const { width } = shape;
    switch (pooling.kind) {
      case null:
        return;
      case "mean": {
        const at = this.#sum(firstToken, count) >>> 2;
        for (let i = 0; i < width; i++) out[i] = (out[i] as number) + (floats[at + i] as number);
        return;
      }
      case "cls":
      case "last": {
        const at = this.#state(pooling.kind === "cls" ? firstToken : firstToken + count - 1) >>> 2;
        out.set(floats.subarray(at, at + width));
        return;
      }
      case "tokens":
        return;
      case "rank":
        if (pooling.head) this.#score(pooling.head, firstToken, count, out);
    }
  }

  /** Writes the hidden states of tokens after the output norm. If the pooling has a matrix, the states are multiplied by it. */
  #poolTokens(firstToken: number, count: number, out: Float32Array): void {
    const { dense, products, norms, outputNorm, floats, shape, pooling, at } = this.#parts;
    const { width } = shape;
    const [share] = dense;
    norms.run(outputNorm, at.hidden + firstToken * width * floatBytes, at.input, count);
    if (share) products.multiply(share, at.input, width, count, at.gated);
    const first = (share ? at.gated : at.input) >>> 2;
    const stride = share?.stride ?? width;
    for (let i = 0; i < count; i++) {
      const from = first + i * stride;
      out.set(floats.subarray(from, from + pooling.length), i * pooling.length);
    }
  }

  /** Computes a token's hidden state after the output norm. Returns its address. */
  #state(token: number): number {
    const { norms, outputNorm, at, shape } = this.#parts;
    norms.run(outputNorm, at.hidden + token * shape.width * floatBytes, at.input, 1);
    return at.input;
  }

  /** Sums the hidden states of `count` tokens after the output norm. Returns the address of the sum. */
  #sum(firstToken: number, count: number): number {
    const { kernels, norms, outputNorm, at, floats, shape } = this.#parts;
    const { width } = shape;
    const { hidden, input, joined } = at;
    norms.run(outputNorm, hidden + firstToken * width * floatBytes, input, count);
    floats.fill(0, joined >>> 2, (joined >>> 2) + width);
    kernels.addRows(input, width, joined, 0, count, width);
    return joined;
  }

  /**
   * Multiplies the pooled hidden state by the dense layers. Models with dense layers compute each sequence in a single pass, so the state
   * is final.
   */
  #project(out: Float32Array): void {
    const { dense, products, floats, at } = this.#parts;
    floats.set(out, at.joined >>> 2);
    let state = at.joined;
    for (const [i, share] of dense.entries()) {
      const to = i % 2 === 0 ? at.gated : at.slabs;
      products.multiply(share, state, share.pieces[0]?.matrix.columns ?? 0, 1, to);
      state = to;
    }
    out.set(floats.subarray(state >>> 2, (state >>> 2) + out.length));
  }

  #score(head: ScoringHead, firstToken: number, count: number, out: Float32Array): void {
    const { norms, scoring, at } = this.#parts;
    let state = this.#scored(head.of, firstToken, count);
    if (scoring.dense) {
      state = this.#multiply(scoring.dense, state, at.gated);
      this.#activate(head.activation, state);
      if (head.norm) norms.run(head.norm, state, state, 1);
    }
    if (scoring.output) state = this.#multiply(scoring.output, state, at.slabs);
    const first = state >>> 2;
    out.set(this.#parts.floats.subarray(first, first + out.length));
    if (head.softmax) softmax(out);
  }

  /** Computes the input of the scoring head. Returns its address. */
  #scored(of: ScoringHead["of"], firstToken: number, count: number): number {
    if (of !== "mean") return this.#state(of === "first" ? firstToken : firstToken + count - 1);
    const { kernels, shape } = this.#parts;
    const sum = this.#sum(firstToken, count);
    kernels.scaleRows(sum, shape.width, 1, shape.width, 1 / count);
    return sum;
  }

  #multiply(share: Share, x: number, out: number): number {
    const { products, shape } = this.#parts;
    products.multiply(share, x, shape.width, 1, out);
    return out;
  }

  #activate(activation: ScoringHead["activation"], state: number): void {
    const { kernels, floats, shape } = this.#parts;
    if (activation === "gelu") kernels.activate(activationNumbers.gelu, state, state, shape.width);
    else for (let i = state >>> 2, end = i + shape.width; i < end; i++) floats[i] = Math.tanh(floats[i] as number);
  }
}

function softmax(scores: Float32Array): void {
  const largest = scores.reduce((most, score) => Math.max(most, score), Number.NEGATIVE_INFINITY);
  let sum = 0;
  for (let i = 0; i < scores.length; i++) {
    const weight = Math.exp((scores[i] as number) - largest);
    scores[i] = weight;
    sum += weight;
  }
  for (let i = 0; i < scores.length; i++) scores[i] = (scores[i] as number) / sum;
}
