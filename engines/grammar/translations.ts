// Owns the translations made last, as most requests of a client demand the same of their outputs. Called by the agents, one
// for each of their threads.
import type { OutputGrammar } from "../chat.ts";
import { type Translation, translateGrammar } from "./translate.ts";

export class Translations {
  readonly #limit: number;
  /** By what was translated, the one used last at the end. */
  readonly #made = new Map<string, Translation>();

  constructor(limit = 64) {
    this.#limit = limit;
  }

  /** Throws what translateGrammar throws. */
  of(grammar: OutputGrammar): Translation {
    const key = JSON.stringify(grammar);
    const translation = this.#made.get(key) ?? translateGrammar(grammar);
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
