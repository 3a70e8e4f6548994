// Owns what is wished for one model beside its requests: to be unloaded, loaded anew, out of another model's way, or gone
// because nobody needs it; and who is to be told. ModelLife carries the wishes out.
import type { ModelOutcome } from "../model-management.ts";

/** Why a model leaves memory while the server runs, the most pressing first. */
const departures = ["unload", "evict", "idle", "reload"] as const;

export type Departure = (typeof departures)[number];

type Caller = (outcome: ModelOutcome) => void;

export class Wishes {
  readonly #callers: { unload: Caller[]; reload: Caller[] } = { unload: [], reload: [] };
  readonly #flags = { evict: false, idle: false };

  /** Settles with what settle() says. */
  async call(wish: "unload" | "reload"): Promise<ModelOutcome> {
    return await new Promise<ModelOutcome>((resolve) => this.#callers[wish].push(resolve));
  }

  flag(wish: "evict" | "idle"): void {
    this.#flags[wish] = true;
  }

  has(wish: Departure): boolean {
    return wish === "evict" || wish === "idle" ? this.#flags[wish] : this.#callers[wish].length > 0;
  }

  /** Why it is to leave; null where it may stay. */
  get departure(): Departure | null {
    return departures.find((wish) => this.has(wish)) ?? null;
  }

  /** It has left, or was not there: nobody wants that of it any more. */
  departed(outcome: ModelOutcome): void {
    this.#flags.evict = false;
    this.#flags.idle = false;
    this.settle("unload", outcome);
  }

  settle(wish: "unload" | "reload", outcome: ModelOutcome): void {
    for (const call of this.#callers[wish].splice(0)) call(outcome);
  }
}
