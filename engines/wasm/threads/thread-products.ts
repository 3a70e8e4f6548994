// Thread products: multiplies one thread's rows of a matrix by the inputs of a pass, and gathers the results of all
// threads. Used by compute-thread.ts and by the steps of its passes.

import type { ClampRanges, Matrix, Norm } from "../graph/graph-tensors.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { InputCollector } from "../pass/input-collector.ts";
import type { Share } from "../plan/partition-plan.ts";
import type { AllGather } from "./all-gather.ts";
import type { ThreadMemory } from "./thread-memory.ts";
import type { ThreadNorms } from "./thread-norms.ts";

const floatBytes = 4;
/** Value of `preparedAs` for inputs that are in no activation format. */
const notPrepared = -1;

export interface ProductParts {
  readonly shape: Pick<Hyperparameters, "width" | "residualScale">;
  readonly index: number;
  readonly kernels: KernelExports;
  readonly at: ThreadMemory;
  readonly allGather: AllGather;
  readonly norms: ThreadNorms;
}

export class ThreadProducts {
  /** Address of this thread's slab: its results, which gather() sends to the other threads. */
  readonly ownSlab: number;
  /** Collector of the products' inputs; null = inputs are not collected. */
  collector: InputCollector | null = null;
  readonly #shape: ProductParts["shape"];
  readonly #index: number;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  readonly #allGather: AllGather;
  readonly #norms: ThreadNorms;

  constructor({ shape, index, kernels, at, allGather, norms }: ProductParts) {
    this.ownSlab = at.slabs + index * at.slabBytes;
    this.#shape = shape;
    this.#index = index;
    this.#kernels = kernels;
    this.#at = at;
    this.#allGather = allGather;
    this.#norms = norms;
  }

  own(shares: readonly Share[]): Share {
    return shares[this.#index] as Share;
  }

  /**
   * Multiplies n rows of `columns` floats at x by this thread's pieces (consecutive rows of the matrices), clamps the products, adds the
   * biases, applies the scales, and writes rows of share.stride floats at `out`. `preparedAs` is the activation format in which x is already
   * prepared; notPrepared = in none. Returns the format in which x is prepared afterwards. `index` selects a matrix of a stack (experts).
   */
  multiply(
    share: Share,
    x: number,
    columns: number,
    n: number,
    out: number,
    preparedAs = notPrepared,
    index = 0,
  ): number {
    const { pieces, stride } = share;
    const { prepared, weights, biases, scales } = this.#at;
    this.collector?.add(share, x, n, index);
    let current = preparedAs;
    for (const { matrix, padded, slabColumn } of pieces) {
      const { name, tensor, bias, scale, clamp } = matrix;
      const { type } = tensor;
      const form = this.#kernels.activationForm(type);
      if (clamp) this.#prepareClamped(matrix, clamp, x, columns, n);
      else if (form !== current) this.#kernels.prepare(type, x, columns, n, columns, prepared);
      // After a clamp, `prepared` has the clamped rows, not x.
      current = clamp ? notPrepared : form;
      const y = out + slabColumn * floatBytes;
      const ahead = index === 0 ? 0 : index * (this.#kernels.matrixBytes(type, padded, columns) >>> 0);
      this.#kernels.multiply(type, (weights.get(name) as number) + ahead, padded, columns, prepared, n, y, stride);
      if (clamp) {
        const [min, max] = [weights.get(clamp.outputMin.name) as number, weights.get(clamp.outputMax.name) as number];
        this.#kernels.clampRows(y, stride, y, stride, n, padded, min, max);
      }
      if (bias !== null) this.#kernels.addVector(y, stride, n, biases.get(name) as number, padded);
      if (scale) this.#kernels.scaleColumns(y, stride, n, scales.get(name) as number, padded);
    }
    return current;
  }

  /** Prepares the clamped inputs of a matrix. `x` stays unchanged, because other matrices may read it. */
  #prepareClamped(
    { tensor }: Matrix,
    { inputMin, inputMax }: ClampRanges,
    x: number,
    columns: number,
    n: number,
  ): void {
    const { clamped, prepared, weights } = this.#at;
    const [min, max] = [weights.get(inputMin.name) as number, weights.get(inputMax.name) as number];
    this.#kernels.clampRows(x, columns, clamped, columns, n, columns, min, max);
    this.#kernels.prepare(tensor.type, clamped, columns, n, columns, prepared);
  }

  /**
   * Sends the first n rows of this thread's slab (its results) to the other threads, and receives the slabs of all
   * other threads.
   */
  gather(shares: readonly Share[], n: number): void {
    this.#allGather.slabs((thread) => n * (shares[thread] as Share).stride * floatBytes);
  }

  /** Joins the slabs of all threads: writes n whole rows to ThreadMemory.joined. */
  join(shares: readonly Share[], n: number): void {
    const width = shares.reduce((sum, { pieces }) => sum + pieces.reduce((rows, piece) => rows + piece.rows, 0), 0);
    shares.forEach(({ pieces, stride }, thread) => {
      const slab = this.#at.slabs + thread * this.#at.slabBytes;
      for (const { rows, slabColumn, column } of pieces) {
        const to = this.#at.joined + column * floatBytes;
        this.#kernels.copyRows(slab + slabColumn * floatBytes, stride, to, width, n, rows);
      }
    });
  }

  /**
   * Gathers the slabs and adds the results to the hidden states of n tokens of the pass, from `firstToken` on. Before that, it
   * norms the results by `postNorm` unless it is null, and multiplies them by `factor`.
   */
  addToHidden(shares: readonly Share[], n: number, postNorm: Norm | null, factor = 1, firstToken = 0): void {
    const { width } = this.#shape;
    const scale = this.#shape.residualScale * factor;
    const { joined, slabs, slabBytes } = this.#at;
    const hidden = this.#at.hidden + firstToken * width * floatBytes;
    if (postNorm) {
      this.gather(shares, n);
      this.join(shares, n);
      this.#norms.run(postNorm, joined, joined, n);
      if (scale !== 1) this.#kernels.scaleRows(joined, width, n, width, scale);
      this.#kernels.addRows(joined, width, hidden, width, n, width);
      return;
    }
    const own = this.own(shares).stride;
    if (scale !== 1) this.#kernels.scaleRows(this.ownSlab, own, n, own, scale);
    this.gather(shares, n);
    shares.forEach(({ pieces, stride }, thread) => {
      const slab = slabs + thread * slabBytes;
      for (const { rows, slabColumn, column } of pieces) {
        const to = hidden + column * floatBytes;
        this.#kernels.addRows(slab + slabColumn * floatBytes, stride, to, width, n, rows);
      }
    });
  }
}
