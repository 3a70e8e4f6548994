// Owns which experts each token of a pass takes, how much each of them counts, and the tokens sorted by expert. Every compute
// thread works it out for itself from the same logits, so it must depend on nothing else. Called by experts.ts.
import type { Hyperparameters } from "../graph/shape.ts";

/** Of scratch for what experts compute inside, unless a single token needs more. A few tokens to each expert are what pays. */
const mostRows = 1024;

/** Tokens of a pass that go to their experts at a time. */
export function expertTokens({ experts }: Pick<Hyperparameters, "experts">, passTokens: number): number {
  return experts === null ? 0 : Math.max(1, Math.min(passTokens, Math.floor(mostRows / experts.used)));
}

/** Rows that they have there. */
export function expertRows(shape: Pick<Hyperparameters, "experts">, passTokens: number): number {
  return expertTokens(shape, passTokens) * (shape.experts?.used ?? 0);
}

interface RoutingShape {
  /** Experts there are. */
  readonly count: number;
  /** Those that each token takes. */
  readonly used: number;
  /** Most tokens at a time. */
  readonly tokens: number;
}

/**
 * A row is a token at an expert: there are `used` for each token. They lie expert by expert, ascending, and for an expert in
 * the order of the tokens: what a token gets never depends on those beside it.
 */
export class ExpertRouting {
  /** The experts that are taken, ascending; the first `takenCount` mean something. */
  readonly taken: Int32Array;
  takenCount = 0;
  readonly rowToken: Int32Array;
  readonly rowWeight: Float32Array;
  readonly #shape: RoutingShape;
  /** By expert: where its rows begin; one more for the end of the last. */
  readonly #firstRow: Int32Array;
  readonly #nextRow: Int32Array;
  /** By token and rank. */
  readonly #chosen: Int32Array;
  readonly #weights: Float32Array;
  /** Of the token under way, by rank. */
  readonly #best: Float64Array;

  constructor(shape: RoutingShape) {
    const { count, used, tokens } = shape;
    this.#shape = shape;
    this.taken = new Int32Array(count);
    this.rowToken = new Int32Array(tokens * used);
    this.rowWeight = new Float32Array(tokens * used);
    this.#firstRow = new Int32Array(count + 1);
    this.#nextRow = new Int32Array(count);
    this.#chosen = new Int32Array(tokens * used);
    this.#weights = new Float32Array(tokens * used);
    this.#best = new Float64Array(used);
  }

  firstRowOf(expert: number): number {
    return this.#firstRow[expert] as number;
  }

  rowCountOf(expert: number): number {
    return (this.#firstRow[expert + 1] as number) - (this.#firstRow[expert] as number);
  }

  /** Routes n tokens by their logits, which lie token by token at `from`. */
  route(logits: Float32Array, from: number, n: number, normalised: boolean): void {
    for (let token = 0; token < n; token++) {
      const at = from + token * this.#shape.count;
      this.#choose(logits, at, token);
      this.#weigh(logits, at, token, normalised);
    }
    this.#sort(n);
  }

  /** The experts with the largest logits; of equal ones those that come first. NaN counts as the least. */
  #choose(logits: Float32Array, from: number, token: number): void {
    const { count, used } = this.#shape;
    const chosen = token * used;
    const best = this.#best;
    best.fill(Number.NEGATIVE_INFINITY);
    for (let expert = 0; expert < count; expert++) {
      const logit = logits[from + expert] as number;
      let rank = Math.min(expert, used);
      // The first `used` of them are all taken in, whatever they are: the list never has holes.
      if (rank === used && !(logit > (best[used - 1] as number))) continue;
      if (rank === used) rank--;
      for (; rank > 0 && logit > (best[rank - 1] as number); rank--) {
        best[rank] = best[rank - 1] as number;
        this.#chosen[chosen + rank] = this.#chosen[chosen + rank - 1] as number;
      }
      best[rank] = Number.isNaN(logit) ? Number.NEGATIVE_INFINITY : logit;
      this.#chosen[chosen + rank] = expert;
    }
  }

  /** Their share in the softmax of all experts, or normalised: of those chosen. */
  #weigh(logits: Float32Array, from: number, token: number, normalised: boolean): void {
    const { count, used } = this.#shape;
    const [largest = 0] = this.#best;
    let sum = 0;
    if (normalised) for (let rank = 0; rank < used; rank++) sum += Math.exp((this.#best[rank] as number) - largest);
    else for (let expert = 0; expert < count; expert++) sum += Math.exp((logits[from + expert] as number) - largest);
    for (let rank = 0; rank < used; rank++) {
      this.#weights[token * used + rank] = Math.exp((this.#best[rank] as number) - largest) / sum;
    }
  }

  #sort(n: number): void {
    const { count, used } = this.#shape;
    const first = this.#firstRow;
    first.fill(0);
    for (let i = 0; i < n * used; i++) {
      const after = (this.#chosen[i] as number) + 1;
      first[after] = (first[after] as number) + 1;
    }
    this.takenCount = 0;
    for (let expert = 0; expert < count; expert++) {
      const rows = first[expert + 1] as number;
      if (rows > 0) this.taken[this.takenCount++] = expert;
      this.#nextRow[expert] = first[expert] as number;
      first[expert + 1] = (first[expert] as number) + rows;
    }
    for (let i = 0; i < n * used; i++) {
      const expert = this.#chosen[i] as number;
      const row = this.#nextRow[expert] as number;
      this.#nextRow[expert] = row + 1;
      this.rowToken[row] = Math.floor(i / used);
      this.rowWeight[row] = this.#weights[i] as number;
    }
  }
}
