// Local attention: the attention step of a conformer on one compute thread. A position attends to itself and the positions shortly before
// it, so all scores of a pass are few, and JavaScript computes them.
import { multiplyJoined, type StepRunner } from "../../pass/step-runner.ts";
import type { DividedLocalAttention } from "../../plan/partition-plan.ts";
import { gatherTokens, type TokenParts, tokenRange } from "./token-ranges.ts";

/** Longest wavelength of the sinusoidal encoding of a distance, as a multiple of the shortest. */
const wavelengthRatio = 10_000;

/** Data of a step that depend only on the weights. */
interface Prepared {
  /** Vectors of the distances 0 to `reach` - 1, shape [reach][width]. */
  readonly relativePositions: Float32Array;
  /** Factors of the floats of a query head and of a key head. */
  readonly queryScales: Float64Array;
  readonly keyScales: Float64Array;
}

export class LocalAttention implements StepRunner<DividedLocalAttention> {
  readonly #parts: TokenParts;
  /** Filled by the first pass, in the same order on all threads. */
  readonly #prepared = new Map<DividedLocalAttention, Prepared>();
  /** Scratch: the query of a head, the query times the scales of the keys, and the scores. */
  readonly #query: Float64Array;
  readonly #scaledQuery: Float64Array;
  #scores = new Float64Array(0);

  constructor(parts: TokenParts) {
    this.#parts = parts;
    const { headLength } = parts.plan.shape;
    this.#query = new Float64Array(headLength);
    this.#scaledQuery = new Float64Array(headLength);
  }

  run(step: DividedLocalAttention, n: number): void {
    const { plan, at, products, index } = this.#parts;
    const { width, heads } = plan.shape;
    const prepared = this.#prepared.get(step) ?? this.#prepare(step);
    if (this.#scores.length < step.reach) this.#scores = new Float64Array(step.reach);
    multiplyJoined(this.#parts, step.input, { x: at.input, columns: width, n }, null);
    const { from, to } = tokenRange(index, plan.threads, n);
    for (let token = from; token < to; token++) {
      const out = (products.ownSlab >>> 2) + (token - from) * width;
      const first = Math.max(0, token - step.reach + 1);
      for (let head = 0; head < heads; head++) {
        this.#computeScores(step, prepared, { token, head, first });
        this.#sumValues({ token, head, first }, out);
      }
    }
    gatherTokens(this.#parts, n);
    products.multiply(products.own(step.output), at.input, width, n, products.ownSlab);
    products.addToHidden(step.output, n, step.postNorm);
  }

  #prepare(step: DividedLocalAttention): Prepared {
    const { queryFactor, queryScale, keyFactor, keyScale } = step;
    const prepared = {
      relativePositions: this.#projectDistances(step),
      queryScales: this.#scalesOf(queryScale, queryFactor),
      keyScales: this.#scalesOf(keyScale, keyFactor),
    };
    this.#prepared.set(step, prepared);
    return prepared;
  }

  #projectDistances({ relativePosition, reach }: DividedLocalAttention): Float32Array {
    const { plan, at, floats } = this.#parts;
    const { width } = plan.shape;
    const count = width / 2;
    const rows = at.gated >>> 2;
    for (let distance = 0; distance < reach; distance++) {
      for (let i = 0; i < count; i++) {
        const angle = distance * wavelengthRatio ** (-i / Math.max(1, count - 1));
        floats[rows + distance * width + i] = Math.sin(angle);
        floats[rows + distance * width + count + i] = Math.cos(angle);
      }
    }
    multiplyJoined(this.#parts, relativePosition, { x: at.gated, columns: width, n: reach }, null);
    return floats.slice(at.joined >>> 2, (at.joined >>> 2) + reach * width);
  }

  #scalesOf(scale: DividedLocalAttention["queryScale"], factor: number): Float64Array {
    const { plan, at, floats } = this.#parts;
    const { headLength } = plan.shape;
    const scales = new Float64Array(headLength).fill(factor);
    if (scale === null) return scales;
    const first = (at.weights.get(scale.name) as number) >>> 2;
    return scales.map((value, i) => value * (floats[first + i] as number));
  }

  /** Computes the softmax of a head's scores of one token for the keys from token `first` on, without the division by their sum. */
  #computeScores(
    { softcap }: DividedLocalAttention,
    { relativePositions, queryScales, keyScales }: Prepared,
    { token, head, first }: { readonly token: number; readonly head: number; readonly first: number },
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const [query, scaled, scores] = [this.#query, this.#scaledQuery, this.#scores];
    const [joined, offset, stride] = [at.joined >>> 2, head * headLength, 3 * width];
    const queryAt = joined + token * stride + offset;
    for (let i = 0; i < headLength; i++) {
      query[i] = (floats[queryAt + i] as number) * (queryScales[i] as number);
      scaled[i] = (query[i] as number) * (keyScales[i] as number);
    }
    let largest = Number.NEGATIVE_INFINITY;
    for (let k = 0; k <= token - first; k++) {
      const key = joined + (first + k) * stride + width + offset;
      const distance = (token - first - k) * width + offset;
      let sum = 0;
      for (let i = 0; i < headLength; i++) {
        sum += (scaled[i] as number) * (floats[key + i] as number);
        sum += (query[i] as number) * (relativePositions[distance + i] as number);
      }
      const score = softcap * Math.tanh(sum / softcap);
      scores[k] = score;
      if (score > largest) largest = score;
    }
    for (let k = 0; k <= token - first; k++) scores[k] = Math.exp((scores[k] as number) - largest);
  }

  /** Writes the mean of a head's values, weighted by the scores, to the token's result row, which begins at `out` in `floats`. */
  #sumValues(
    { token, head, first }: { readonly token: number; readonly head: number; readonly first: number },
    out: number,
  ): void {
    const { plan, at, floats } = this.#parts;
    const { width, headLength } = plan.shape;
    const [scores, offset, stride] = [this.#scores, head * headLength, 3 * width];
    const count = token - first + 1;
    let total = 0;
    for (let k = 0; k < count; k++) total += scores[k] as number;
    const values = (at.joined >>> 2) + first * stride + 2 * width + offset;
    for (let i = 0; i < headLength; i++) {
      let sum = 0;
      for (let k = 0; k < count; k++) sum += (scores[k] as number) * (floats[values + i + k * stride] as number);
      floats[out + offset + i] = sum / total;
    }
  }
}
