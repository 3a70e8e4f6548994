// Expert routing: chooses the experts of each token and their weights, and sorts the tokens by expert. Every compute
// thread must get the same result, so the routing depends only on the logits, which are equal in all threads. Called by
// experts.ts.
import type { Hyperparameters } from "../graph/shape.ts";

/**
 * Maximum number of scratch rows for the inner states of the experts. If a single token uses more experts than this, it
 * still gets one row for each of them. The limit is small, because an expert's products are most efficient with a few
 * tokens at a time.
 */
const mostRows = 1024;

/** Returns the number of tokens that are routed at a time; 0 if the model has no experts. */
export function expertTokens({ experts }: Pick<Hyperparameters, "experts">, passTokens: number): number {
  return experts === null ? 0 : Math.max(1, Math.min(passTokens, Math.floor(mostRows / experts.used)));
}

/**
 * Returns the number of rows for the tokens that are routed at a time: one row for each pair of a token and a chosen
 * expert.
 */
export function expertRows(shape: Pick<Hyperparameters, "experts">, passTokens: number): number {
  return expertTokens(shape, passTokens) * (shape.experts?.used ?? 0);
}

interface RoutingShape {
  /** Number of experts in the layer. */
  readonly count: number;
  /** Experts used per token. */
  readonly used: number;
  /** Maximum number of tokens routed at a time. */
  readonly tokens: number;
}

/**
 * Assignment of tokens to experts. A row is a pair of token and expert; each token has `used` rows. Rows are sorted by
 * expert, then by token. Therefore the result of a token never depends on other tokens.
 */
export class ExpertRouting {
  /** Numbers of the chosen experts, ascending. Only the first `takenCount` entries are valid. */
  readonly taken: Int32Array;
  takenCount = 0;
  readonly rowToken: Int32Array;
  readonly rowWeight: Float32Array;
  readonly #shape: RoutingShape;
  /** First row of each expert. One more entry marks the end of the last expert's rows. */
  readonly #firstRow: Int32Array;
  readonly #nextRow: Int32Array;
  /** Chosen experts and their weights: `used` entries per token, in descending order of the logit. */
  readonly #chosen: Int32Array;
  readonly #weights: Float32Array;
  /** Largest logits of the current token, in descending order. */
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

  /**
   * Chooses and weights the experts of n tokens, and sorts the tokens by expert. The logits of token i begin at from +
   * i * count.
   */
  route(logits: Float32Array, from: number, n: number, normalised: boolean): void {
    for (let token = 0; token < n; token++) {
      const at = from + token * this.#shape.count;
      this.#choose(logits, at, token);
      this.#weigh(logits, at, token, normalised);
    }
    this.#sort(n);
  }

  /**
   * Chooses the experts with the largest logits. If logits are equal, the lower expert number is chosen. NaN counts as
   * the smallest value.
   */
  #choose(logits: Float32Array, from: number, token: number): void {
    const { count, used } = this.#shape;
    const chosen = token * used;
    const best = this.#best;
    best.fill(Number.NEGATIVE_INFINITY);
    for (let expert = 0; expert < count; expert++) {
      const logit = logits[from + expert] as number;
      let rank = Math.min(expert, used);
      // The first `used` experts are always inserted, so that the list has no empty entries.
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

  /** Computes the weights: the softmax over all experts or, if `normalised`, the softmax over the chosen experts. */
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
