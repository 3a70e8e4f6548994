// Logprobs of one response: counts what they hold, and what they come to as JSON. Driven by fold.ts.
import type { LogprobRecords } from "../../engines/logprobs.ts";
import type { ShownTokens } from "../../engines/tokenizer/token-texts.ts";
import type { AnswerLease } from "../answer-memory.ts";
import { jsonLength, TokenJson } from "../logprobs.ts";

/** Some logprobs, and what writes their tokens. */
export interface HeldLogprobs {
  readonly records: LogprobRecords;
  readonly tokens: TokenJson;
}

export class LogprobHolder {
  /** About how many characters of JSON they come to. */
  length = 0;
  readonly #texts: () => ShownTokens;
  readonly #lease: AnswerLease;
  #tokens: TokenJson | null = null;

  /** `texts`: those of the model's tokens; asked for where there are logprobs. */
  constructor(texts: () => ShownTokens, lease: AnswerLease) {
    this.#texts = texts;
    this.#lease = lease;
  }

  /** Throws queue_full where that is too much. */
  hold(records: LogprobRecords): HeldLogprobs {
    this.#tokens ??= TokenJson.of(this.#texts());
    this.#lease.add(records.floats.byteLength);
    this.length += jsonLength(records);
    return { records, tokens: this.#tokens };
  }
}
