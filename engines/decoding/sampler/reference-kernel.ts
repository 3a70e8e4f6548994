// Reference kernel: sampling in plain TypeScript with sorts and Math.exp, written for clarity rather than speed. It
// defines the results against which the SIMD kernel is tested, and Sampler.create() uses it if WebAssembly has no SIMD.
import { type Filters, maskWords, type RowKernel } from "./row-kernel.ts";

export class ReferenceKernel implements RowKernel {
  readonly vocabSize: number;
  readonly row: Float32Array;
  readonly mask: Int32Array;
  readonly topIds: Int32Array;
  readonly topLogits: Float32Array;

  constructor(vocabSize: number) {
    this.vocabSize = vocabSize;
    this.row = new Float32Array(vocabSize);
    this.mask = new Int32Array(maskWords(vocabSize));
    this.topIds = new Int32Array(vocabSize);
    this.topLogits = new Float32Array(vocabSize);
  }

  restrict(): void {
    for (let id = 0; id < this.vocabSize; id++) {
      const isAllowed = ((this.mask[id >> 5] as number) >> (id & 31)) & 1;
      if (!isAllowed) this.row[id] = Number.NEGATIVE_INFINITY;
    }
  }

  argmax(): number {
    let best = -1;
    let peak = Number.NEGATIVE_INFINITY;
    for (let id = 0; id < this.vocabSize; id++) {
      if (this.#logit(id) > peak) {
        peak = this.#logit(id);
        best = id;
      }
    }
    return best;
  }

  draw(filters: Filters, u: number): number {
    const best = this.argmax();
    if (best < 0) return -1;
    const peak = this.#logit(best);
    if (peak === Number.POSITIVE_INFINITY) return best;
    const weigh = (id: number) => Math.exp((this.#logit(id) - peak) / filters.temperature);
    const kept = this.#filter(filters, weigh);
    let left = u * sum(kept, weigh);
    let chosen = best;
    for (const id of kept) {
      const weight = weigh(id);
      if (weight === 0) continue;
      chosen = id;
      if (left < weight) break;
      left -= weight;
    }
    return chosen;
  }

  logSum(): number {
    const best = this.argmax();
    if (best < 0) return Number.NEGATIVE_INFINITY;
    const peak = this.#logit(best);
    if (peak === Number.POSITIVE_INFINITY) return peak;
    return peak + Math.log(sum(this.#possible(), (id) => Math.exp(this.#logit(id) - peak)));
  }

  top(limit: number): number {
    const likeliest = this.#byLikelihood(this.#possible()).slice(0, limit);
    this.topIds.set(likeliest);
    this.topLogits.set(likeliest.map((id) => this.#logit(id)));
    return likeliest.length;
  }

  /** Returns the token ids that remain after top-k, top-p and min-p, in ascending order. */
  #filter({ topK, topP, minP }: Filters, weigh: (id: number) => number): number[] {
    let ids = this.#possible();
    if (topK > 0 || topP < 1) ids = this.#byLikelihood(ids);
    if (topK > 0) ids = ids.slice(0, topK);
    if (topP < 1) ids = nucleus(ids, topP * sum(ids, weigh), weigh);
    if (minP > 0) ids = ids.filter((id) => weigh(id) >= minP);
    return ids.sort((a, b) => a - b);
  }

  #possible(): number[] {
    const ids: number[] = [];
    for (let id = 0; id < this.vocabSize; id++) if (this.#logit(id) > Number.NEGATIVE_INFINITY) ids.push(id);
    return ids;
  }

  #byLikelihood(ids: number[]): number[] {
    return ids.sort((a, b) => (this.#logit(a) === this.#logit(b) ? a - b : this.#logit(b) - this.#logit(a)));
  }

  #logit(id: number): number {
    return this.row[id] as number;
  }
}

function sum(ids: readonly number[], weigh: (id: number) => number): number {
  return ids.reduce((all, id) => all + weigh(id), 0);
}

/** Returns the shortest prefix of `ids` (at least one id) whose total weight reaches `target`. */
function nucleus(ids: readonly number[], target: number, weigh: (id: number) => number): number[] {
  let weight = 0;
  const end = ids.findIndex((id) => {
    weight += weigh(id);
    return weight >= target;
  });
  return end < 0 ? [...ids] : ids.slice(0, end + 1);
}
