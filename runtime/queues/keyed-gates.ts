// Keyed gates: one gate for each key, such as a host or a client. A gate exists while runs use it or wait for it. A client gate is a
// gate of which one client never has all places.
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
  async pass<T>(key: string, run: () => Promise<T>, client = "", signal?: AbortSignal): Promise<T> {
    const entry = this.#entries.get(key) ?? { gate: new Gate(this.#places), users: 0 };
    this.#entries.set(key, entry);
    entry.users++;
    try {
      return await entry.gate.pass(run, client, signal);
    } finally {
      if (--entry.users === 0) this.#entries.delete(key);
    }
  }
}

/** Gate for runs that take long: clients would wait for a place if another client had all of them. */
export class ClientGate {
  readonly #gate: Gate;
  readonly #clients: KeyedGates;

  /** `places`, `placesOfClient`: maximum number of concurrent runs, of all clients and of one. */
  constructor(places: number, placesOfClient = Math.ceil(places / 2)) {
    this.#gate = new Gate(places);
    this.#clients = new KeyedGates(placesOfClient);
  }

  /** Starts the run when both limits let it pass; see Gate.pass. */
  async pass<T>(run: () => Promise<T>, client: string, signal?: AbortSignal): Promise<T> {
    return await this.#clients.pass(client, () => this.#gate.pass(run, client, signal), client, signal);
  }
}
