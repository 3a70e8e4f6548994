// Attention block: the attention step on one compute thread. The thread computes its rows of queries, keys and values.
// It then attends over its pages of the KV cache, and computes its rows of the output. Each thread norms and rotates
// the queries and keys of the heads that it computed. Exception: if the norm spans all heads, every thread norms and
// rotates all heads.

import type { HeadNorms } from "../graph/graph.ts";
import type { ThreadKv } from "../kv/thread-kv.ts";
import type { DividedAttention } from "../plan/partition-plan.ts";
import { multiplyAtSite, type StepParts, type StepRunner } from "./step-runner.ts";

const floatBytes = 4;

/** A range of heads of n tokens. Query heads have the lowest numbers, followed by key heads and value heads. */
interface Heads {
  readonly at: number;
  /** Number of floats from the first head of one token to the first head of the next token. */
  readonly stride: number;
  readonly first: number;
  readonly count: number;
  readonly n: number;
}

export class AttentionBlock implements StepRunner<DividedAttention> {
  readonly #parts: StepParts;
  readonly #kv: ThreadKv;

  constructor(parts: StepParts, kv: ThreadKv) {
    this.#parts = parts;
    this.#kv = kv;
  }

  run(step: DividedAttention, n: number): void {
    const { plan, kernels, at, allGather, products } = this.#parts;
    const { input, joined, slabs, slabBytes } = at;
    const { ownSlab } = products;
    const { width, heads, headLength } = plan.shape;
    const attended = heads * headLength;
    multiplyAtSite(this.#parts, products.own(step.input), { site: step.site, x: input, columns: width, n }, ownSlab);
    if (step.norms?.span !== "row") this.#finishOwnHeads(step, n);
    products.gather(step.input, n);
    products.join(step.input, n);
    if (step.norms?.span === "row") this.#finishRows(step, step.norms, n);
    this.#kv.attend(step, joined, ownSlab);
    const partialBytes = n * this.#kv.partialFloats * floatBytes;
    allGather.slabs(() => partialBytes);
    kernels.mergeAttention(slabs, slabBytes, plan.threads, n, heads, headLength, input, attended);
    const merged = { site: step.site + 1, x: input, columns: attended, n };
    multiplyAtSite(this.#parts, products.own(step.output), merged, ownSlab);
    products.addToHidden(step.output, n, step.postNorm);
  }

  /**
   * Norms and rotates the queries and keys, and norms the values, that this thread has just computed. A thread always
   * computes whole heads.
   */
  #finishOwnHeads({ input, norms, rope, secondRope, normsValues }: DividedAttention, n: number): void {
    const { plan, products } = this.#parts;
    const { heads, kvHeads, headLength, rotated } = plan.shape;
    const { pieces, stride } = products.own(input);
    for (const { rows, slabColumn, column } of pieces) {
      const first = column / headLength;
      const at = products.ownSlab + slabColumn * floatBytes;
      const own = { at, stride, first, count: rows / headLength, n };
      if (first >= heads + kvHeads) {
        if (normsValues) this.#normValues(own);
        continue;
      }
      if (norms) this.#normHeads(norms, own);
      this.#rotate(first < heads ? this.#queryRope(rope) : rope, own);
      if (secondRope !== undefined) this.#rotate(secondRope, { ...own, at: at + rotated * floatBytes });
    }
  }

  #normValues({ at, stride, count, n }: Heads): void {
    const { plan, kernels } = this.#parts;
    const { headLength, epsilon } = plan.shape;
    for (let i = 0; i < count; i++) {
      const head = at + i * headLength * floatBytes;
      kernels.rmsNorm(head, stride, 0, head, stride, n, headLength, epsilon);
    }
  }

  #normHeads({ query, key }: HeadNorms, { at, stride, first, count, n }: Heads): void {
    const { heads, headLength } = this.#parts.plan.shape;
    const norm = first < heads ? query : key;
    const differs = norm.weight.bytes > headLength * floatBytes;
    const firstOfNorm = first < heads ? 0 : heads;
    for (let i = 0; i < count; i++) {
      const firstWeight = differs ? (first + i - firstOfNorm) * headLength : 0;
      this.#parts.norms.runInPlace(norm, firstWeight, at + i * headLength * floatBytes, stride, n, headLength);
    }
  }

  #finishRows({ rope }: DividedAttention, { query, key }: HeadNorms, n: number): void {
    const { plan, at, norms } = this.#parts;
    const { heads, kvHeads, headLength } = plan.shape;
    const stride = (heads + 2 * kvHeads) * headLength;
    norms.runInPlace(query, 0, at.joined, stride, n, heads * headLength);
    norms.runInPlace(key, 0, at.joined + heads * headLength * floatBytes, stride, n, kvHeads * headLength);
    this.#rotate(this.#queryRope(rope), { at: at.joined, stride, first: 0, count: heads, n });
    const keys = at.joined + heads * headLength * floatBytes;
    this.#rotate(rope, { at: keys, stride, first: heads, count: kvHeads, n });
  }

  /** Returns the rope of the queries of a step, given that of its keys. */
  #queryRope(rope: number | null): number | null {
    return rope === null ? null : (this.#parts.plan.shape.queryRope ?? rope);
  }

  #rotate(rope: number | null, { at, stride, count, n }: Heads): void {
    if (rope === null) return;
    const { plan, kernels, at: memory } = this.#parts;
    const { headLength, rotated } = plan.shape;
    const neox = plan.graph.pairing === "halves" ? 1 : 0;
    const table = memory.rotation + rope * memory.rotationBytes;
    kernels.rope(at, stride, n, count, headLength, rotated, table, neox);
  }
}
