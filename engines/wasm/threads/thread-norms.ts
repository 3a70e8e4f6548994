// Thread norms: computes norms on one compute thread. All norms of a model are of one kind. Used by compute-thread.ts
// and by the steps of its passes.

import type { Norm } from "../graph/graph-tensors.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import type { ThreadMemory } from "./thread-memory.ts";

const floatBytes = 4;

export class ThreadNorms {
  readonly #plan: PartitionPlan;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;

  constructor(plan: PartitionPlan, kernels: KernelExports, at: ThreadMemory) {
    this.#plan = plan;
    this.#kernels = kernels;
    this.#at = at;
  }

  /**
   * Applies the norm to n adjacent rows of the hidden state's width. `out` may equal `x`. If `norm` is null, the rows
   * are only copied.
   */
  run(norm: Norm | null, x: number, out: number, n: number): void {
    const { width } = this.#plan.shape;
    if (norm) this.#rows(norm, 0, x, out, width, n, width);
    else if (out !== x) this.#kernels.copyRows(x, width, out, width, n, width);
  }

  /**
   * Applies the norm in place to n rows of k floats. The rows are `stride` floats apart. Float i of a row is multiplied
   * by the norm's weight number firstWeight + i.
   */
  runInPlace(norm: Norm, firstWeight: number, x: number, stride: number, n: number, k: number): void {
    this.#rows(norm, firstWeight, x, x, stride, n, k);
  }

  #rows({ weight, bias }: Norm, first: number, x: number, out: number, stride: number, n: number, k: number): void {
    const { graph, shape } = this.#plan;
    const weights = this.#addressOf(weight.name) + first * floatBytes;
    if (graph.normKind === "rms") {
      this.#kernels.rmsNorm(x, stride, weights, out, stride, n, k, shape.epsilon);
    } else {
      const biases = bias === null ? 0 : this.#addressOf(bias.name) + first * floatBytes;
      this.#kernels.layerNorm(x, stride, weights, biases, out, stride, n, k, shape.epsilon);
    }
  }

  #addressOf(name: string): number {
    return this.#at.weights.get(name) as number;
  }
}
