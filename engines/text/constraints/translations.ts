// The translations made last, as most requests of a client demand the same of their outputs; of those that were refused and
// would be again, why. Each text worker has its own.
import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import { RefusedGrammars } from "./refused-grammars.ts";
import { type OutputConstraint, type Translation, translateOutput } from "./translate.ts";

/** Characters of all grammars that are kept. */
const maxKept = 8 * 1024 * 1024;

export class Translations {
  readonly #limit: number;
  readonly #maxKept: number;
  /** By the digest of what was translated, the one used last at the end. */
  readonly #made = new Map<string, Translation>();
  /** Characters of their grammars. */
  #kept = 0;
  readonly #refusals = new RefusedGrammars();

  constructor(limit = 64, most = maxKept) {
    this.#limit = limit;
    this.#maxKept = most;
  }

  /** Throws what translateOutput throws. */
  of(demand: OutputConstraint): Translation {
    const syntax = demand.calls?.syntax;
    // What a syntax writes around a call is a function's, of which JSON says nothing.
    const written = JSON.stringify([demand, syntax?.before("tool"), syntax?.after("tool")]);
    const key = createHash("sha256").update(written).digest("base64");
    const known = this.#made.get(key);
    const translation = known ?? this.#translate(demand, key);
    if (known === undefined) this.#kept += translation.source.grammar.length;
    this.#made.delete(key);
    this.#made.set(key, translation);
    while (this.#made.size > this.#limit || this.#kept > this.#maxKept) this.#dropOldest();
    return translation;
  }

  #translate(demand: OutputConstraint, key: string): Translation {
    const refusal = this.#refusals.of(key, performance.now());
    if (refusal !== null) throw refusal;
    try {
      return translateOutput(demand);
    } catch (error) {
      if (isFinal(error)) this.#refusals.add(key, error, performance.now());
      throw error;
    }
  }

  #dropOldest(): void {
    for (const [oldest, { source }] of this.#made) {
      this.#made.delete(oldest);
      this.#kept -= source.grammar.length;
      return;
    }
  }
}

/** Whether the same demand would be refused again. A RangeError is a limit of the runtime: on the depth of calls, or on the length of a text. */
function isFinal(error: unknown): error is Error {
  return error instanceof RangeError || (error instanceof ServerError && !error.retryable);
}
