// Attention with relative positions: the attention step of a conformer on one compute thread. JavaScript computes the scores, because there
// are few of them: a window of audio has a few hundred positions.
import { multiplyJoined, type StepRunner } from "../../pass/step-runner.ts";
import type { DividedRelativeAttention } from "../../plan/partition-plan.ts";
import { gatherTokens, type TokenParts, tokenRange } from "./token-ranges.ts";

/** Longest wavelength of the sinusoidal encoding of a distance, as a multiple of the shortest. */
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

/** A head of a token, and the tokens from `first` to before `end` to which it attends. */
interface Attended {
  readonly token: number;
  readonly head: number;
  readonly first: number;
  readonly end: number;
}

export class RelativeAttention implements StepRunner<DividedRelativeAttention> {
  readonly #parts: TokenParts;
  /** Filled by the first pass, in the same order on all threads. */
  readonly #prepared = new Map<DividedRelativeAttention, Prepared>();
  /** Scratch: the query of a head for products with positions, the same for products with keys, and the scores. */
  readonly #positionQuery: Float64Array;
  readonly #keyQuery: Float64Array;
  readonly #scores: Float64Array;

  constructor(parts: TokenParts) {
    this.#parts = parts;
    const { shape, passTokens } = parts.plan;
    this.#positionQuery = new Float64Array(shape.headLength);
    this.#keyQuery = new Float64Array(shape.headLength);
    this.#scores = new Float64Array(passTokens);
  }

  run(step: DividedRelativeAttention, n: number): void {
    const { plan, at, products, index } = this.#parts;
    const { width, heads } = plan.shape;
    const prepared = this.#prepared.get(step) ?? this.#prepare(step);
    multiplyJoined(this.#parts, step.input, { x: at.input, columns: width, n }, null);
    const { from, to } = tokenRange(index, plan.threads, n);
    for (let token = from; token < to; token++) {
      const out = (products.ownSlab >>> 2) + (token - from) * width;
      const [first, end] = [Math.max(0, token - step.behind), Math.min(n, token + step.ahead + 1)];
      for (let head = 0; head < heads; head++) {
        this.#computeScores(step, prepared, { token, head, first, end });
        this.#sumValues({ token, head, first, end }, out);
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

  /** Computes the softmax of the scores of one head of a token, without the division by their sum. */
  #computeScores(
    { softcap }: DividedRelativeAttention,
    { relativePositions, farthestAhead, ...prepared }: Prepared,
    { token, head, first, end }: Attended,
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const [positionQuery, keyQuery, scores] = [this.#positionQuery, this.#keyQuery, this.#scores];
    const { queryScales, keyScales, contentBias, positionBias } = prepared;
    const [joined, offset, stride] = [at.joined >>> 2, head * headLength, 3 * width];
    const queryAt = joined + token * stride + offset;
    for (let i = 0; i < headLength; i++) {
      const [value, scale] = [floats[queryAt + i] as number, queryScales[i] as number];
      positionQuery[i] = (value + (positionBias[offset + i] as number)) * scale;
      keyQuery[i] = (value + (contentBias[offset + i] as number)) * scale * (keyScales[i] as number);
    }
    let largest = Number.NEGATIVE_INFINITY;
    for (let other = first; other < end; other++) {
      const key = joined + other * stride + width + offset;
      const position = (token - other + farthestAhead) * width + offset;
      let score = 0;
      for (let i = 0; i < headLength; i++) {
        score += (keyQuery[i] as number) * (floats[key + i] as number);
        score += (positionQuery[i] as number) * (relativePositions[position + i] as number);
      }
      if (softcap > 0) score = softcap * Math.tanh(score / softcap);
      scores[other - first] = score;
      if (score > largest) largest = score;
    }
    for (let k = 0; k < end - first; k++) scores[k] = Math.exp((scores[k] as number) - largest);
  }

  /** Writes the mean of a head's values, weighted by the scores, to the token's result row, which begins at `out` in `floats`. */
  #sumValues({ head, first, end }: Attended, out: number): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const [scores, offset, stride] = [this.#scores, head * headLength, 3 * width];
    const target = out + offset;
    floats.fill(0, target, target + headLength);
    let total = 0;
    for (let k = 0; k < end - first; k++) {
      const score = scores[k] as number;
      const values = (at.joined >>> 2) + (first + k) * stride + 2 * width + offset;
      for (let i = 0; i < headLength; i++)
        floats[target + i] = (floats[target + i] as number) + score * (floats[values + i] as number);
      total += score;
    }
    for (let i = 0; i < headLength; i++) floats[target + i] = (floats[target + i] as number) / total;
  }
}
