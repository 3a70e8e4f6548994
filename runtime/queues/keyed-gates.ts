// Keyed gates: one gate for each key, such as a host or a client. A gate exists while runs use it or wait for it.
import { Gate } from "./gate.ts";

interface Entry {
  readonly gate: Gate;
  /** Number of runs that use the gate or wait for it. */
  users: number;
}

export class KeyedGates {
  readonly #places: number;
  readonly #entries = new Map<string, Entry>();

  /** `places`: maximum number of concurrent runs with the same key. */
  constructor(places: number) {
    this.#places = places;
  }

  /** Starts the run when the gate of the key lets it pass; see Gate.pass. */
  async pass<T>(key: string, run: () => Promise<T>, client = ""): Promise<T> {
    const entry = this.#entries.get(key) ?? { gate: new Gate(this.#places), users: 0 };
    this.#entries.set(key, entry);
    entry.users++;
    try {
      return await entry.gate.pass(run, client);
    } finally {
      if (--entry.users === 0) this.#entries.delete(key);
    }
  }
}
