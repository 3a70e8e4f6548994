// Divergence of one model's logits from another's, averaged over many positions of a real text. Pure arithmetic.

/** Divergence of a tested model from a reference model: means over the compared positions, and the number of these positions. */
export interface Divergence {
  readonly positions: number;
  readonly referencePerplexity: number;
  readonly perplexity: number;
  /** Share of positions where both models have the same likeliest token. */
  readonly sameTopShare: number;
  /** Kullback-Leibler divergence of the tested model's distribution from the reference's, in nats. */
  readonly meanKl: number;
  /** This divergence at each position. */
  readonly kls: readonly number[];
  /** Negative log-likelihood of each next token by the tested model, in nats. */
  readonly losses: readonly number[];
}

export class DivergenceMeter {
  readonly #kls: number[] = [];
  readonly #losses: number[] = [];
  #sameTop = 0;
  #referenceLossSum = 0;

  /** Adds one position: the logits of both models, and the token that follows in the text. */
  add(reference: Float32Array, subject: Float32Array, next: number): void {
    const [referenceTop, subjectTop] = [indexOfLargest(reference), indexOfLargest(subject)];
    const [referenceMax, subjectMax] = [at(reference, referenceTop), at(subject, subjectTop)];
    let referenceSum = 0;
    let subjectSum = 0;
    let weightedGap = 0;
    for (let token = 0; token < reference.length; token++) {
      const [a, b] = [at(reference, token), at(subject, token)];
      const weight = Math.exp(a - referenceMax);
      referenceSum += weight;
      subjectSum += Math.exp(b - subjectMax);
      weightedGap += weight * (a - b);
    }
    const referenceNorm = referenceMax + Math.log(referenceSum);
    const subjectNorm = subjectMax + Math.log(subjectSum);
    this.#sameTop += referenceTop === subjectTop ? 1 : 0;
    this.#kls.push(weightedGap / referenceSum - referenceNorm + subjectNorm);
    this.#referenceLossSum += referenceNorm - at(reference, next);
    this.#losses.push(subjectNorm - at(subject, next));
  }

  result(): Divergence {
    const positions = this.#losses.length;
    return {
      positions,
      referencePerplexity: Math.exp(this.#referenceLossSum / positions),
      perplexity: Math.exp(mean(this.#losses)),
      sameTopShare: this.#sameTop / positions,
      meanKl: mean(this.#kls),
      kls: this.#kls,
      losses: this.#losses,
    };
  }
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function indexOfLargest(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (at(values, i) > at(values, best)) best = i;
  return best;
}

/** Returns the element at an index known to be in range. */
function at(values: Float32Array, index: number): number {
  return values[index] as number;
}
