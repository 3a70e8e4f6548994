// Local attention: the attention step of a conformer on one compute thread. A position attends to itself and the positions shortly before
// it, so all scores of a pass are few, and JavaScript computes them.
import { multiplyJoined, type StepRunner } from "../../pass/step-runner.ts";
import type { DividedLocalAttention } from "../../plan/partition-plan.ts";
import { gatherTokens, type TokenParts, tokensOf } from "./token-shares.ts";

/** Number of positions to which a position attends, including itself. */
const reach = 12;
/** Scores are limited to this size by tanh. */
const cap = 50;
/** Ratio of the shortest to the longest wavelength of the sines of a distance. */
const wavelengths = 10_000;
/** Factor of the keys: softplus(1) in units of ln 2. That of the queries is 1 / sqrt(headLength) in units of ln 2. */
const keyFactor = Math.log(1 + Math.E) / Math.LN2;

export class LocalAttention implements StepRunner<DividedLocalAttention> {
  readonly #parts: TokenParts;
  /** Vectors for the distances 0 to `reach` - 1 of each step, shape [reach][width]. They depend only on the weights. */
  readonly #distances = new Map<DividedLocalAttention, Float32Array>();
  readonly #query: Float64Array;
  readonly #scaledQuery: Float64Array;
  readonly #scores = new Float64Array(reach);

  constructor(parts: TokenParts) {
    this.#parts = parts;
    const { headLength } = parts.plan.shape;
    this.#query = new Float64Array(headLength);
    this.#scaledQuery = new Float64Array(headLength);
  }

  run(step: DividedLocalAttention, n: number): void {
    const { plan, at, products, index } = this.#parts;
    const { width, heads } = plan.shape;
    const distances = this.#distances.get(step) ?? this.#computeDistances(step);
    multiplyJoined(this.#parts, step.input, { x: at.input, columns: width, n }, null);
    const [queryFactors, keyFactors] = this.#factors(step);
    const { from, to } = tokensOf(index, plan.threads, n);
    for (let token = from; token < to; token++) {
      const out = (products.ownSlab >>> 2) + (token - from) * width;
      for (let head = 0; head < heads; head++) this.#attend(token, head, distances, queryFactors, keyFactors, out);
    }
    gatherTokens(this.#parts, n);
    products.multiply(products.own(step.output), at.input, width, n, products.ownSlab);
    products.addToHidden(step.output, n, step.postNorm);
  }

  #computeDistances(step: DividedLocalAttention): Float32Array {
    const { plan, at, floats } = this.#parts;
    const { width } = plan.shape;
    const count = width / 2;
    const rows = at.gated >>> 2;
    for (let distance = 0; distance < reach; distance++) {
      for (let i = 0; i < count; i++) {
        const angle = distance * wavelengths ** (-i / Math.max(1, count - 1));
        floats[rows + distance * width + i] = Math.sin(angle);
        floats[rows + distance * width + count + i] = Math.cos(angle);
      }
    }
    multiplyJoined(this.#parts, step.distance, { x: at.gated, columns: width, n: reach }, null);
    const distances = floats.slice(at.joined >>> 2, (at.joined >>> 2) + reach * width);
    this.#distances.set(step, distances);
    return distances;
  }

  /** Returns the factors of the floats of a head's queries and keys. */
  #factors({ queryScale, keyScale }: DividedLocalAttention): [Float64Array, Float64Array] {
    const { plan, at, floats } = this.#parts;
    const { headLength } = plan.shape;
    const factors = (scale: DividedLocalAttention["queryScale"], factor: number) => {
      const first = scale && (at.weights.get(scale.name) as number) >>> 2;
      return Float64Array.from({ length: headLength }, (_, i) =>
        first === null ? factor : factor * (floats[first + i] as number),
      );
    };
    return [factors(queryScale, 1 / Math.sqrt(headLength) / Math.LN2), factors(keyScale, keyFactor)];
  }

  /** Computes one head of one token, and adds its place in the row to `out`, the index of the token's result row. */
  #attend(
    token: number,
    head: number,
    distances: Float32Array,
    queryFactors: Float64Array,
    keyFactors: Float64Array,
    out: number,
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const [query, scaled, scores] = [this.#query, this.#scaledQuery, this.#scores];
    const [joined, ofHead, stride] = [at.joined >>> 2, head * headLength, 3 * width];
    const queryAt = joined + token * stride + ofHead;
    for (let i = 0; i < headLength; i++) {
      query[i] = (floats[queryAt + i] as number) * (queryFactors[i] as number);
      scaled[i] = (query[i] as number) * (keyFactors[i] as number);
    }
    const first = Math.max(0, token - reach + 1);
    const count = token - first + 1;
    let largest = Number.NEGATIVE_INFINITY;
    for (let k = 0; k < count; k++) {
      const key = joined + (first + k) * stride + width + ofHead;
      const distance = (token - first - k) * width + ofHead;
      let sum = 0;
      for (let i = 0; i < headLength; i++) {
        sum += (scaled[i] as number) * (floats[key + i] as number);
        sum += (query[i] as number) * (distances[distance + i] as number);
      }
      const score = cap * Math.tanh(sum / cap);
      scores[k] = score;
      if (score > largest) largest = score;
    }
    let total = 0;
    for (let k = 0; k < count; k++) {
      scores[k] = Math.exp((scores[k] as number) - largest);
      total += scores[k] as number;
    }
    for (let i = 0; i < headLength; i++) {
      let sum = 0;
      const value = joined + first * stride + 2 * width + ofHead + i;
      for (let k = 0; k < count; k++) sum += (scores[k] as number) * (floats[value + k * stride] as number);
      floats[out + ofHead + i] = sum / total;
    }
  }
}
