// Owns the translations made last, as most requests of a client demand the same of their outputs. Called by the agents, one
// for each of their threads.
import { createHash } from "node:crypto";
import { type OutputDemand, type Translation, translateOutput } from "./translate.ts";

/** Characters of all grammars that are kept. */
const maxKept = 8 * 1024 * 1024;

export class Translations {
  readonly #limit: number;
  readonly #maxKept: number;
  /** By the digest of what was translated, the one used last at the end. */
  readonly #made = new Map<string, Translation>();
  /** Characters of their grammars. */
  #kept = 0;

  constructor(limit = 64, most = maxKept) {
    this.#limit = limit;
    this.#maxKept = most;
  }

  /** Throws what translateOutput throws. */
  of(demand: OutputDemand): Translation {
    const syntax = demand.calls?.syntax;
    // What a syntax writes around a call is a function's, of which JSON says nothing.
    const written = JSON.stringify([demand, syntax?.before("tool"), syntax?.after("tool")]);
    const key = createHash("sha256").update(written).digest("base64");
    const known = this.#made.get(key);
    const translation = known ?? translateOutput(demand);
    if (known === undefined) this.#kept += translation.source.grammar.length;
    this.#made.delete(key);
    this.#made.set(key, translation);
    while (this.#made.size > this.#limit || this.#kept > this.#maxKept) this.#dropOldest();
    return translation;
  }

  #dropOldest(): void {
    for (const [oldest, { source }] of this.#made) {
      this.#made.delete(oldest);
      this.#kept -= source.grammar.length;
      return;
    }
  }
}
