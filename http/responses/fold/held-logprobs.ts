// Logprob accounting of one response: counts the memory of the logprobs and estimates the length of their JSON. Used by
// fold.ts.
import type { LogprobRecords } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { jsonLength, TokenJson } from "../../shared/answer/logprobs.ts";

export interface HeldLogprobs {
  readonly records: LogprobRecords;
  readonly tokens: TokenJson;
}

export class LogprobHolder {
  /** Estimated characters of the logprobs as JSON. */
  length = 0;
  readonly #texts: () => ShownTokens;
  readonly #lease: AnswerLease;
  #tokens: TokenJson | null = null;

  /** `texts`: returns the token texts of the model; called only if there are logprobs. */
  constructor(texts: () => ShownTokens, lease: AnswerLease) {
    this.#texts = texts;
    this.#lease = lease;
  }

  /**
   * Counts the memory of logprobs, and returns them together with the serialiser of their tokens. Throws queue_full if the
   * memory limit is exceeded.
   */
  hold(records: LogprobRecords): HeldLogprobs {
    this.#tokens ??= TokenJson.of(this.#texts());
    this.#lease.add(records.floats.byteLength);
    this.length += jsonLength(records);
    return { records, tokens: this.#tokens };
  }
}
