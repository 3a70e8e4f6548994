// Penalties of one sequence that depend on its previous tokens: repetition, presence and frequency. SamplingState
// applies them to a row of logits before temperature. Only the logits of previous tokens change.
import type { Sampling } from "../../generation.ts";

const INITIAL_ROOM = 256;

/**
 * The repetition penalty counts prompt and output tokens: a positive logit is divided by the penalty, a negative one is
 * multiplied by it. The presence and frequency penalties count output tokens only: a token that was generated `count`
 * times loses `presence + frequency * count`.
 */
export class Penalties {
  readonly #repetition: number;
  readonly #presence: number;
  readonly #frequency: number;
  /** By token: 1 + its index in #ids and #counts; 0 = not seen. */
  readonly #place: Int32Array;
  #ids = new Int32Array(INITIAL_ROOM);
  /** Number of times that each token in #ids was generated; 0 = it occurs only in the prompt. */
  #counts = new Int32Array(INITIAL_ROOM);
  #seen = 0;

  /** Creates the penalties for `sampling`; null if all of them are neutral. */
  static of(sampling: Sampling, vocabSize: number, prompt: Int32Array): Penalties | null {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
    if (repetitionPenalty === 1 && presencePenalty === 0 && frequencyPenalty === 0) return null;
    const penalties = new Penalties(sampling, vocabSize);
    if (repetitionPenalty !== 1) for (const token of prompt) penalties.#see(token);
    return penalties;
  }

  private constructor(sampling: Sampling, vocabSize: number) {
    this.#repetition = sampling.repetitionPenalty;
    this.#presence = sampling.presencePenalty;
    this.#frequency = sampling.frequencyPenalty;
    this.#place = new Int32Array(vocabSize);
  }

  apply(row: Float32Array): void {
    for (let i = 0; i < this.#seen; i++) {
      const token = this.#ids[i] as number;
      const count = this.#counts[i] as number;
      let logit = row[token] as number;
      logit = logit > 0 ? logit / this.#repetition : logit * this.#repetition;
      if (count > 0) logit -= this.#presence + this.#frequency * count;
      row[token] = logit;
    }
  }

  record(token: number): void {
    const place = this.#see(token);
    this.#counts[place] = (this.#counts[place] as number) + 1;
  }

  #see(token: number): number {
    const known = this.#place[token] as number;
    if (known > 0) return known - 1;
    if (this.#seen === this.#ids.length) {
      this.#ids = doubled(this.#ids);
      this.#counts = doubled(this.#counts);
    }
    this.#ids[this.#seen] = token;
    this.#place[token] = ++this.#seen;
    return this.#seen - 1;
  }
}

function doubled(array: Int32Array): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(array.length * 2);
  larger.set(array);
  return larger;
}
