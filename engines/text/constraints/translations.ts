// Translation cache: the last translations, because most requests of a client have the same constraints, and the reasons of the
// refusals that would repeat. Each text worker has its own.
import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import { RefusedGrammars } from "./refused-grammars.ts";
import { type OutputConstraint, type Translation, translateOutput } from "./translate.ts";

/** Characters of all cached grammars, at most. */
const maxKept = 8 * 1024 * 1024;

export class Translations {
  readonly #limit: number;
  readonly #maxKept: number;
  /** By the digest of the constraint; the last used is at the end. */
  readonly #made = new Map<string, Translation>();
  /** Characters of the cached grammars. */
  #kept = 0;
  readonly #refusals = new RefusedGrammars();

  constructor(limit = 64, most = maxKept) {
    this.#limit = limit;
    this.#maxKept = most;
  }

  /** Throws the errors of translateOutput. */
  of(constraint: OutputConstraint): Translation {
    const syntax = constraint.calls?.syntax;
    // A syntax writes the text around a call by functions, which JSON omits.
    const written = JSON.stringify([constraint, syntax?.before("tool"), syntax?.after("tool")]);
    const key = createHash("sha256").update(written).digest("base64");
    const known = this.#made.get(key);
    const translation = known ?? this.#translate(constraint, key);
    if (known === undefined) this.#kept += translation.source.grammar.length;
    this.#made.delete(key);
    this.#made.set(key, translation);
    while (this.#made.size > this.#limit || this.#kept > this.#maxKept) this.#dropOldest();
    return translation;
  }

  #translate(constraint: OutputConstraint, key: string): Translation {
    const refusal = this.#refusals.of(key, performance.now());
    if (refusal !== null) throw refusal;
    try {
      return translateOutput(constraint);
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

/** True if the same constraint would fail again. A RangeError is a limit of the runtime: call depth, or length of a text. */
function isFinal(error: unknown): error is Error {
  return error instanceof RangeError || (error instanceof ServerError && !error.retryable);
}
