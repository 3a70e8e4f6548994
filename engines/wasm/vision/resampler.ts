// Resampler: cross-attention from learned queries to the patches of an image, on one compute thread. The thread computes queries, keys and
// values of its own heads. It has the keys of all patches for its heads, so attention results need no merging across threads. Finally, the
// results of all threads are joined.

import type { StepParts } from "../pass/step-runner.ts";
import type { DividedResampler } from "../plan/partition-plan.ts";
import type { PassDescriptor } from "../plan/pass-descriptor.ts";
import type { ResamplerStep } from "./vision-outer-layers.ts";

const floatBytes = 4;
/** Value of attend()'s parameters `behind` and `ahead` that means all positions. */
const allPositions = 0x7fffffff;
const frequencyBase = 10_000;

export interface ResamplerParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly step: ResamplerStep;
  readonly divided: DividedResampler;
  /** View of the thread's memory. */
  readonly floats: Float32Array;
}

export class Resampler {
  readonly #parts: ResamplerParts;
  /**
   * Frequencies of the position encoding. A position row has four quarters: sine and cosine of the column, then sine and cosine of the row.
   */
  readonly #frequencies: Float32Array;

  constructor(parts: ResamplerParts) {
    this.#parts = parts;
    const quarter = parts.step.key.columns / 4;
    this.#frequencies = Float32Array.from({ length: quarter }, (_, i) => 1 / frequencyBase ** (i / quarter));
  }

  /** Resamples the n rows at x: writes one result row for each query to ThreadMemory.joined. Returns the number of queries. */
  run(x: number, n: number): number {
    const { step, divided, products, kernels, at } = this.#parts;
    const { columns } = step.key;
    const queries = step.queries.filled?.rows ?? step.queries.rows;
    this.#writePositions(n);
    kernels.addRows(x, columns, at.input, columns, n, columns);
    products.multiply(products.own(divided.key), at.input, columns, n, products.ownSlab);
    products.multiply(products.own(divided.value), x, columns, n, at.gated);
    this.#store(n);
    this.#readQueries(queries);
    products.multiply(products.own(divided.query), at.input, columns, queries, products.ownSlab);
    this.#attend(queries, n);
    products.gather(divided.query, queries);
    products.join(divided.query, queries);
    return queries;
  }

  /** Writes the position row of each patch to ThreadMemory.input: sine and cosine of its column, then of its row. */
  #writePositions(n: number): void {
    const { at, floats, pass, step } = this.#parts;
    const { columns } = step.key;
    const half = columns / 2;
    const { patchColumns } = pass;
    const longest = Math.max(patchColumns, Math.ceil(n / patchColumns));
    const waves = Array.from({ length: longest }, (_, index) => this.#wave(index));
    for (let patch = 0; patch < n; patch++) {
      const to = (at.input >>> 2) + patch * columns;
      floats.set(waves[patch % patchColumns] as Float32Array, to);
      floats.set(waves[Math.floor(patch / patchColumns)] as Float32Array, to + half);
    }
  }

  #wave(index: number): Float32Array {
    const quarter = this.#frequencies.length;
    const wave = new Float32Array(2 * quarter);
    this.#frequencies.forEach((frequency, i) => {
      wave[i] = Math.sin(index * frequency);
      wave[quarter + i] = Math.cos(index * frequency);
    });
    return wave;
  }

  /** Stores the keys and values of the thread's heads in the thread's pages. */
  #store(n: number): void {
    const { at, kernels, plan, step, products, divided, floats } = this.#parts;
    const { resampler } = at;
    if (!resampler || resampler.heads === 0) return;
    const { blockTokens, kvType } = plan;
    const { stride } = products.own(divided.key);
    const list = new Int32Array(floats.buffer, resampler.pageList, Math.ceil(n / blockTokens) * 2);
    for (let block = 0; block * blockTokens < n; block++) {
      list[block * 2] = resampler.pages + block * resampler.pageBytes;
      list[block * 2 + 1] = block * blockTokens;
    }
    for (let i = 0; i < n; i++) {
      const page = list[Math.floor(i / blockTokens) * 2] as number;
      const [key, value] = [products.ownSlab, at.gated].map((address) => address + i * stride * floatBytes);
      const index = i % blockTokens;
      kernels.kvWrite(
        kvType,
        page,
        index,
        blockTokens,
        key as number,
        value as number,
        resampler.heads,
        step.headLength,
      );
    }
  }

  /** Writes the learned queries, after their norm, to ThreadMemory.input. */
  #readQueries(queries: number): void {
    const { at, kernels, step, divided } = this.#parts;
    const [piece] = divided.queries.pieces;
    const { columns, tensor, name } = step.queries;
    const address = at.weights.get(name) as number;
    for (let i = 0; i < queries; i++) {
      kernels.readRow(tensor.type, address, i, piece?.padded ?? 0, columns, at.input + i * columns * floatBytes);
    }
    const { weight, bias } = step.norm;
    const [scale, shift] = [at.weights.get(weight.name) as number, bias ? (at.weights.get(bias.name) as number) : 0];
    kernels.layerNorm(at.input, columns, scale, shift, at.input, columns, queries, columns, step.epsilon);
  }

  /** Computes attention for the thread's heads, and overwrites the queries in the thread's slab with the results. */
  #attend(queries: number, n: number): void {
    const { at, kernels, plan, step, products, divided } = this.#parts;
    const { resampler, gated } = at;
    if (!resampler || resampler.heads === 0) return;
    const { heads, pageList } = resampler;
    const { headLength } = step;
    const { stride } = products.own(divided.query);
    const blocks = Math.ceil(n / plan.blockTokens);
    // attend() ignores keys after the position of the last query. Each batch of queries therefore gets the last positions of the
    // patches, so that each query attends to the keys of all n patches.
    for (let first = 0; first < queries; first += n) {
      const count = Math.min(n, queries - first);
      const rows = products.ownSlab + first * stride * floatBytes;
      const scale = 1 / Math.sqrt(headLength);
      kernels.attend(
        ...([plan.kvType, pageList, blocks, plan.blockTokens, rows, stride, count, n - count] as const),
        ...([heads, heads, headLength, scale, 0, allPositions, allPositions, gated, 0] as const),
      );
      kernels.mergeAttention(gated, at.slabBytes, 1, count, heads, headLength, rows, stride);
    }
  }
}
