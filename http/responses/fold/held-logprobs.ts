// Logprobs of one response: counts the memory they hold and the length of their JSON. Used by fold.ts.
import type { LogprobRecords } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { jsonLength, TokenJson } from "../../shared/answer/logprobs.ts";

/** Logprobs with the serialiser of their tokens. */
export interface HeldLogprobs {
  readonly records: LogprobRecords;
  readonly tokens: TokenJson;
}

export class LogprobHolder {
  /** Estimated characters of their JSON. */
  length = 0;
  readonly #texts: () => ShownTokens;
  readonly #lease: AnswerLease;
  #tokens: TokenJson | null = null;

  /** `texts`: token texts of the model; called only for logprobs. */
  constructor(texts: () => ShownTokens, lease: AnswerLease) {
    this.#texts = texts;
    this.#lease = lease;
  }

  /** Throws queue_full if they exceed the memory limit. */
  hold(records: LogprobRecords): HeldLogprobs {
    this.#tokens ??= TokenJson.of(this.#texts());
    this.#lease.add(records.floats.byteLength);
    this.length += jsonLength(records);
    return { records, tokens: this.#tokens };
  }
}
