// Penalties of one sequence that depend on its previous tokens: repetition, presence and frequency. SamplingState
// applies them to a row of logits before temperature. Only the logits of previous tokens change.
import type { Sampling } from "../../generation.ts";

const INITIAL_ROOM = 256;
const none = new Int32Array(0);

/**
 * The repetition penalty counts prompt and output tokens: a positive logit is divided by the penalty, a negative one is
 * multiplied by it. The presence and frequency penalties count output tokens only: a token that was generated `count`
 * times loses `presence + frequency * count`.
 */
export class Penalties {
  readonly #repetition: number;
  readonly #presence: number;
  readonly #frequency: number;
  readonly #vocabSize: number;
  /** Prompt tokens that are counted at the first use; empty after that. */
  #prompt: Int32Array;
  /**
   * By token: 1 + its index in #ids and #counts; 0 = not seen. Empty until the first use, so that sequences that wait
   * for a slot take no memory for their vocabulary.
   */
  #place = none;
  #ids = new Int32Array(INITIAL_ROOM);
  /** Number of times that each token in #ids was generated; 0 = it occurs only in the prompt. */
  #counts = new Int32Array(INITIAL_ROOM);
  #seen = 0;

  /** Creates the penalties for `sampling`; null if all of them are neutral. */
  static of(sampling: Sampling, vocabSize: number, prompt: Int32Array): Penalties | null {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
    if (repetitionPenalty === 1 && presencePenalty === 0 && frequencyPenalty === 0) return null;
    return new Penalties(sampling, vocabSize, repetitionPenalty === 1 ? none : prompt);
  }

  private constructor(sampling: Sampling, vocabSize: number, prompt: Int32Array) {
    this.#repetition = sampling.repetitionPenalty;
    this.#presence = sampling.presencePenalty;
    this.#frequency = sampling.frequencyPenalty;
    this.#vocabSize = vocabSize;
    this.#prompt = prompt;
  }

  apply(row: Float32Array): void {
    this.#begin();
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
    this.#begin();
    const place = this.#see(token);
    this.#counts[place] = (this.#counts[place] as number) + 1;
  }

  #begin(): void {
    if (this.#place.length > 0) return;
    this.#place = new Int32Array(this.#vocabSize);
    for (const token of this.#prompt) this.#see(token);
    this.#prompt = none;
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
