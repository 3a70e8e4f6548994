// Classifier of an X-LoRA mixture on one compute thread: linear layers over the hidden states of a pass. The rows of
// these layers are divided among the threads, like the rows of every other matrix. weights.ts turns the outputs into
// adapter weights.

import { classifierPieces } from "../graph/weight-lists.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { Mixture } from "../plan/mixture.ts";
import { type DividedGraph, rowGrain } from "../plan/partition-plan.ts";
import type { ThreadMemory } from "../threads/thread-memory.ts";
import type { ThreadProducts } from "../threads/thread-products.ts";
import { classifierViews } from "./mixture.ts";

const floatBytes = 4;

export class Classifier {
  readonly #mixture: Mixture;
  readonly #divided: DividedGraph;
  readonly #products: ThreadProducts;
  readonly #at: ThreadMemory;
  readonly #floats: Float32Array;
  readonly #layers: ReturnType<typeof classifierViews>;

  constructor(
    mixture: Mixture,
    values: SharedArrayBuffer,
    divided: DividedGraph,
    products: ThreadProducts,
    at: ThreadMemory,
    floats: Float32Array,
  ) {
    this.#mixture = mixture;
    this.#divided = divided;
    this.#products = products;
    this.#at = at;
    this.#floats = floats;
    this.#layers = classifierViews(mixture, values);
  }

  /** Packs the rows of the classifier's matrices that thread `index` computes. */
  load(index: number, kernels: KernelExports): void {
    const { staging, weights } = this.#at;
    for (const { matrix, firstRow, rows, padded } of classifierPieces(this.#divided, index)) {
      const { columns, name, tensor } = matrix;
      const { weight } = this.#layers[this.#mixture.classifier.indexOf(matrix)] as { weight: Float32Array };
      for (let done = 0; done < rows; done += rowGrain) {
        const count = Math.min(rowGrain, rows - done);
        const from = (firstRow + done) * columns;
        this.#floats.set(weight.subarray(from, from + count * columns), staging / floatBytes);
        kernels.packRows(tensor.type, staging, weights.get(name) as number, done, count, padded, columns);
      }
    }
  }

  /**
   * Runs the classifier on n tokens. Their hidden states, after the output norm, are at `input`. Returns the address of
   * the outputs, one row per token.
   */
  run(input: number, n: number): number {
    const { joined } = this.#at;
    let x = input;
    for (const [i, shares] of this.#divided.classifier.entries()) {
      const { columns } = this.#mixture.classifier[i] as { columns: number };
      this.#products.multiply(this.#products.own(shares), x, columns, n, this.#products.ownSlab);
      this.#products.gather(shares, n);
      this.#products.join(shares, n);
      this.#finish(i, n);
      x = joined;
    }
    return joined;
  }

  /**
   * Adds the bias of a layer. After every layer except the last, it also applies the rectifier (ReLU) if the mixture
   * has one.
   */
  #finish(layer: number, n: number): void {
    const floats = this.#floats;
    const { bias } = this.#layers[layer] as { bias: Float32Array };
    const least = this.#mixture.rectifies && layer < this.#layers.length - 1 ? 0 : Number.NEGATIVE_INFINITY;
    let at = this.#at.joined / floatBytes;
    for (let i = 0; i < n; i++) {
      for (let row = 0; row < bias.length; row++, at++) {
        floats[at] = Math.max((floats[at] as number) + (bias[row] as number), least);
      }
    }
  }
}
