// Translation cache: holds the latest translations, because most requests of a client have the same constraints. It
// also holds errors that would occur again with the same constraint. Each text worker has its own cache.
import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import { RefusedGrammars } from "./refused-grammars.ts";
import { type OutputConstraint, type Translation, translateOutput } from "./translate.ts";

/** Maximum total length of the cached grammars, in characters. */
const maxKept = 8 * 1024 * 1024;

export class Translations {
  readonly #limit: number;
  readonly #maxKept: number;
  /** Translations by the digest of their constraint. The most recently used is at the end. */
  readonly #made = new Map<string, Translation>();
  /** Total length of the cached grammars, in characters. */
  #kept = 0;
  readonly #refusals = new RefusedGrammars();

  constructor(limit = 64, most = maxKept) {
    this.#limit = limit;
    this.#maxKept = most;
  }

  /** Returns the translation of a constraint. Throws the errors of translateOutput. */
  of(constraint: OutputConstraint): Translation {
    const syntax = constraint.calls?.syntax;
    // The functions of a call syntax are missing in its JSON text, so the texts that they return are added to the key.
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

/**
 * True if the same constraint would fail again. A RangeError means that a limit of JavaScript was
 * exceeded: call depth, or string length.
 */
function isFinal(error: unknown): error is Error {
  return error instanceof RangeError || (error instanceof ServerError && !error.retryable);
}
