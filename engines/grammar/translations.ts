// Owns the translations made last, as most requests of a client demand the same of their outputs. Called by the agents, one
// for each of their threads.
import { type OutputDemand, type Translation, translateOutput } from "./translate.ts";

export class Translations {
  readonly #limit: number;
  /** By what was translated, the one used last at the end. */
  readonly #made = new Map<string, Translation>();

  constructor(limit = 64) {
    this.#limit = limit;
  }

  /** Throws what translateOutput throws. */
  of(demand: OutputDemand): Translation {
    const syntax = demand.calls?.syntax;
    // What a syntax writes around a call is a function's, of which JSON says nothing.
    const key = JSON.stringify([demand, syntax?.before("tool"), syntax?.after("tool")]);
    const translation = this.#made.get(key) ?? translateOutput(demand);
    this.#made.delete(key);
    this.#made.set(key, translation);
    if (this.#made.size > this.#limit) this.#dropOldest();
    return translation;
  }

  #dropOldest(): void {
    for (const oldest of this.#made.keys()) {
      this.#made.delete(oldest);
      return;
    }
  }
}
