// Logprobs of one response: counts the memory they hold and the length of their JSON. Used by fold.ts.
import type { LogprobRecords } from "../../../engines/logprobs.ts";
import type { ShownTokens } from "../../../engines/text/tokenizer/token-texts.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { jsonLength, TokenJson } from "../../shared/answer/logprobs.ts";

/** Some logprobs, and what writes their tokens. */
export interface HeldLogprobs {
  readonly records: LogprobRecords;
  readonly tokens: TokenJson;
}

export class LogprobHolder {
  /** Characters of their JSON, estimated. */
  length = 0;
  readonly #texts: () => ShownTokens;
  readonly #lease: AnswerLease;
  #tokens: TokenJson | null = null;

  /** `texts`: those of the model's tokens; asked for where there are logprobs. */
  constructor(texts: () => ShownTokens, lease: AnswerLease) {
    this.#texts = texts;
    this.#lease = lease;
  }

  /** Throws queue_full where they are too much to hold. */
  hold(records: LogprobRecords): HeldLogprobs {
    this.#tokens ??= TokenJson.of(this.#texts());
    this.#lease.add(records.floats.byteLength);
    this.length += jsonLength(records);
    return { records, tokens: this.#tokens };
  }
}
