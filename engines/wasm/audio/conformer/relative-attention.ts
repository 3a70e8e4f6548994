// Attention with relative positions: the attention step of a conformer on one compute thread. For each head and each block of queries, the
// scores of keys and of distances, and the weighted sums of values, are products of the kernels.
import { multiplyJoined, type StepRunner } from "../../pass/step-runner.ts";
import type { DividedRelativeAttention } from "../../plan/partition-plan.ts";
import {
  blockTokens,
  columnGrain,
  layOutRelative,
  padded,
  type RelativeScratch,
  rowGrain,
} from "./relative-scratch.ts";
import { gatherTokens, type TokenParts, tokenRange } from "./token-ranges.ts";

/** GGUF type number of F32. */
const f32 = 0;

/** Ratio of the wavelengths of the sinusoidal encoding of a distance; see RelativeAttentionRules.encoding. */
const wavelengthRatio = 10_000;

/** Data of a step that depend only on the weights. */
interface Prepared {
  /** Vectors of the distances (query position minus key position) from -`farthestAhead` on, shape [distances][width]. */
  readonly relativePositions: Float32Array;
  readonly farthestAhead: number;
  /** Factors of the floats of a query head and of a key head. */
  readonly queryScales: Float64Array;
  readonly keyScales: Float64Array;
  /** Biases of all queries, shape [heads][headLength]. */
  readonly contentBias: Float32Array;
  readonly positionBias: Float32Array;
}

/** A block of consecutive queries of one head, and the keys from `first` to before `end`, to which any of them attends. */
interface Block {
  readonly head: number;
  readonly from: number;
  readonly count: number;
  readonly first: number;
  readonly end: number;
}

export class RelativeAttention implements StepRunner<DividedRelativeAttention> {
  readonly #parts: TokenParts;
  readonly #scratch: RelativeScratch;
  /** Filled by the first pass, in the same order on all threads. */
  readonly #prepared = new Map<DividedRelativeAttention, Prepared>();

  constructor(parts: TokenParts) {
    this.#parts = parts;
    this.#scratch = layOutRelative(parts.plan, parts.at.relative);
  }

  run(step: DividedRelativeAttention, n: number): void {
    const { plan, at, products, index } = this.#parts;
    const { width, heads } = plan.shape;
    const prepared = this.#prepared.get(step) ?? this.#prepare(step);
    multiplyJoined(this.#parts, step.input, { x: at.input, columns: width, n }, null);
    const { from, to } = tokenRange(index, plan.threads, n);
    for (let head = 0; head < heads; head++) {
      let packed = { first: 0, end: 0 };
      for (let start = from; start < to; start += blockTokens) {
        const count = Math.min(blockTokens, to - start);
        const [first, end] = [Math.max(0, start - step.behind), Math.min(n, start + count + step.ahead)];
        const block = { head, from: start, count, first, end };
        if (packed.first !== first || packed.end !== end) this.#packKeysAndValues(block);
        packed = { first, end };
        this.#computeScores(prepared, block);
        this.#toWeights(step, block);
        this.#sumValues(block, (products.ownSlab >>> 2) + (start - from) * width);
      }
    }
    gatherTokens(this.#parts, n);
    products.multiply(products.own(step.output), at.input, width, n, products.ownSlab);
    products.addToHidden(step.output, n, step.postNorm);
  }

  #prepare(step: DividedRelativeAttention): Prepared {
    const farthest = this.#parts.plan.passTokens - 1;
    const [behind, farthestAhead] = [Math.min(step.behind, farthest), Math.min(step.ahead, farthest)];
    const prepared = {
      relativePositions: this.#projectDistances(step, -farthestAhead, behind),
      farthestAhead,
      queryScales: this.#scalesOf(step.queryScale, step.queryFactor),
      keyScales: this.#scalesOf(step.keyScale, step.keyFactor),
      contentBias: this.#biasOf(step.contentBias),
      positionBias: this.#biasOf(step.positionBias),
    };
    this.#prepared.set(step, prepared);
    return prepared;
  }

  /** Returns the vectors of the distances from `from` to `to`, both included. */
  #projectDistances(step: DividedRelativeAttention, from: number, to: number): Float32Array {
    const { plan, at, floats } = this.#parts;
    const { passTokens, shape } = plan;
    const { width } = shape;
    const vectors = new Float32Array((to - from + 1) * width);
    for (let distance = from; distance <= to; distance += passTokens) {
      const n = Math.min(passTokens, to - distance + 1);
      for (let i = 0; i < n; i++) this.#encode(step, distance + i, (at.gated >>> 2) + i * width);
      multiplyJoined(this.#parts, step.relativePosition, { x: at.gated, columns: width, n }, null);
      vectors.set(floats.subarray(at.joined >>> 2, (at.joined >>> 2) + n * width), (distance - from) * width);
    }
    return vectors;
  }

  /** Writes the sinusoidal encoding of a distance at index `to` of `floats`. */
  #encode({ encoding }: DividedRelativeAttention, distance: number, to: number): void {
    const { plan, floats } = this.#parts;
    const count = plan.shape.width / 2;
    const isInterleaved = encoding === "interleaved";
    for (let i = 0; i < count; i++) {
      const angle = distance * wavelengthRatio ** (-i / (isInterleaved ? count : Math.max(1, count - 1)));
      floats[to + (isInterleaved ? 2 * i : i)] = Math.sin(angle);
      floats[to + (isInterleaved ? 2 * i + 1 : count + i)] = Math.cos(angle);
    }
  }

  #scalesOf(scale: DividedRelativeAttention["queryScale"], factor: number): Float64Array {
    const { plan, at, floats } = this.#parts;
    const { headLength } = plan.shape;
    const scales = new Float64Array(headLength).fill(factor);
    if (scale === null) return scales;
    const first = (at.weights.get(scale.name) as number) >>> 2;
    return scales.map((value, i) => value * (floats[first + i] as number));
  }

  #biasOf(bias: DividedRelativeAttention["contentBias"]): Float32Array {
    const { plan, at, floats } = this.#parts;
    const { width } = plan.shape;
    if (bias === null) return new Float32Array(width);
    const first = (at.weights.get(bias.name) as number) >>> 2;
    return floats.slice(first, first + width);
  }

  /** Packs the keys of a block as a matrix with a row for each key, and its values as a matrix with a column for each key. */
  #packKeysAndValues({ head, first, end }: Block): void {
    const { plan, at, kernels, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const { source, keys, values, depth } = this.#scratch;
    const [count, columns] = [end - first, padded(end - first, columnGrain)];
    const row = (at.joined >>> 2) + first * 3 * width + head * headLength;
    const from = source >>> 2;
    floats.fill(0, from, from + count * depth);
    for (let key = 0; key < count; key++) {
      const at = row + key * 3 * width + width;
      floats.copyWithin(from + key * depth, at, at + headLength);
    }
    kernels.packRows(f32, source, keys, 0, count, padded(count, rowGrain), depth);
    floats.fill(0, from, from + headLength * columns);
    for (let key = 0; key < count; key++) {
      const value = row + key * 3 * width + 2 * width;
      for (let i = 0; i < headLength; i++) floats[from + i * columns + key] = floats[value + i] as number;
    }
    kernels.packRows(f32, source, values, 0, headLength, padded(headLength, rowGrain), columns);
  }

  /** Computes the products of the queries of a block with its keys, and with the vectors of all distances between them. */
  #computeScores({ relativePositions, farthestAhead, ...prepared }: Prepared, block: Block): void {
    const { plan, kernels, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const { source, keys, positions, scores, positionScores, depth } = this.#scratch;
    const { head, from, count, first, end } = block;
    const offset = head * headLength;
    const keyRows = padded(end - first, rowGrain);
    this.#writeQueries(block, prepared.queryScales, prepared.contentBias, prepared.keyScales);
    this.#multiply(keys, keyRows, count, scores, padded(end - first, columnGrain));
    // Row r belongs to the distance from - end + 1 + r.
    const distances = end - first + count - 1;
    const to = source >>> 2;
    floats.fill(0, to, to + distances * depth);
    for (let r = 0; r < distances; r++) {
      const at = (from - end + 1 + r + farthestAhead) * width + offset;
      floats.set(relativePositions.subarray(at, at + headLength), to + r * depth);
    }
    kernels.packRows(f32, source, positions, 0, distances, padded(distances, rowGrain), depth);
    this.#writeQueries(block, prepared.queryScales, prepared.positionBias, null);
    this.#multiply(positions, padded(distances, rowGrain), count, positionScores, padded(distances, rowGrain));
  }

  /** Writes (query + bias) * scales * moreScales for the queries of a block. */
  #writeQueries(
    { head, from, count }: Block,
    scales: Float64Array,
    bias: Float32Array,
    moreScales: Float64Array | null,
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const { queries, depth } = this.#scratch;
    const offset = head * headLength;
    for (let i = 0; i < count; i++) {
      const source = (at.joined >>> 2) + (from + i) * 3 * width + offset;
      const target = (queries >>> 2) + i * depth;
      floats.fill(0, target, target + depth);
      for (let k = 0; k < headLength; k++) {
        const value = ((floats[source + k] as number) + (bias[offset + k] as number)) * (scales[k] as number);
        floats[target + k] = moreScales === null ? value : value * (moreScales[k] as number);
      }
    }
  }

  /** Multiplies `count` queries by a packed matrix, and writes rows of `stride` floats at `out`. */
  #multiply(matrix: number, rows: number, count: number, out: number, stride: number): void {
    const { at, kernels } = this.#parts;
    const { queries, depth } = this.#scratch;
    kernels.prepare(f32, queries, depth, count, depth, at.prepared);
    kernels.multiply(f32, matrix, rows, depth, at.prepared, count, out, stride);
  }

  /** Replaces the scores of a block by their softmax. Keys to which a query does not attend, and padding, get the weight 0. */
  #toWeights({ behind, ahead, softcap }: DividedRelativeAttention, { from, count, first, end }: Block): void {
    const { floats } = this.#parts;
    const { scores, positionScores } = this.#scratch;
    const stride = padded(end - first, columnGrain);
    const positionStride = padded(end - first + count - 1, rowGrain);
    for (let i = 0; i < count; i++) {
      const row = (scores >>> 2) + i * stride;
      const [low, high] = [Math.max(first, from + i - behind), Math.min(end, from + i + ahead + 1)];
      // The distance of key j is in column i - j + end - 1 of the row.
      const ofPositions = (positionScores >>> 2) + i * positionStride + i + end - 1;
      let largest = Number.NEGATIVE_INFINITY;
      for (let key = low; key < high; key++) {
        let score = (floats[row + key - first] as number) + (floats[ofPositions - key] as number);
        if (softcap > 0) score = softcap * Math.tanh(score / softcap);
        floats[row + key - first] = score;
        if (score > largest) largest = score;
      }
      let total = 0;
      for (let at = row + low - first; at < row + high - first; at++) {
        const weight = Math.exp((floats[at] as number) - largest);
        floats[at] = weight;
        total += weight;
      }
      for (let at = row + low - first; at < row + high - first; at++) floats[at] = (floats[at] as number) / total;
      floats.fill(0, row, row + low - first);
      floats.fill(0, row + high - first, row + stride);
    }
  }

  /** Writes the values of a block, weighted by the softmax, to the result rows of its queries, of which the first begins at `out`. */
  #sumValues({ head, count, first, end }: Block, out: number): void {
    const { plan, at, kernels, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const { values, scores, sums } = this.#scratch;
    const [columns, stride] = [padded(end - first, columnGrain), padded(headLength, rowGrain)];
    kernels.prepare(f32, scores, columns, count, columns, at.prepared);
    kernels.multiply(f32, values, stride, columns, at.prepared, count, sums, stride);
    for (let i = 0; i < count; i++) {
      const source = (sums >>> 2) + i * stride;
      floats.copyWithin(out + i * width + head * headLength, source, source + headLength);
    }
  }
}
