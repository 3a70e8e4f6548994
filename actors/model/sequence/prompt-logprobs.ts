// Prompt logprobs: collects the logprobs of one prompt while its tokens are computed. If a token is computed again, its new
// logprobs replace the old ones.
import type { TokenLogprobs } from "../../../engines/decoding/sampler/sampler.ts";

export class PromptLogprobs {
  readonly top: number;
  readonly #records: Float32Array;
  readonly #stride: number;

  /** `top`: number of alternatives per token. */
  constructor(promptLength: number, top: number) {
    this.top = top;
    this.#stride = 2 + 2 * top;
    this.#records = new Float32Array((promptLength - 1) * this.#stride);
  }

  /** Sets the logprobs of the prompt token at `position` >= 1. */
  set(position: number, { chosen, count, ids, logprobs }: TokenLogprobs): void {
    let at = (position - 1) * this.#stride;
    this.#records[at++] = chosen;
    this.#records[at++] = count;
    for (let i = 0; i < count; i++) {
      this.#records[at++] = ids[i] as number;
      this.#records[at++] = logprobs[i] as number;
    }
  }

  /** Returns a record for each token except the first: logprob, count n, and n pairs of id and logprob. */
  take(): Float32Array {
    return this.#records;
  }
}
