// Owns what is wished for one model beside its requests: to be unloaded, loaded anew, out of another model's way, or gone
// because nobody needs it; and who is to be told. Of unloading and loading the one that was wished for last is how it ends:
// an unload answers the reloads before it too, and a reload is carried out after the unload before it. ManagedModel carries the
// wishes out.
import type { ModelOutcome } from "../api/model-management.ts";

/** Why a model leaves memory while the server runs, the most pressing first. */
const departures = ["unload", "evict", "idle", "reload"] as const;

export type UnloadReason = (typeof departures)[number];

/** What one call wished for, and all that come before it is answered. */
interface Asked {
  readonly answer: Promise<ModelOutcome>;
  readonly settle: (outcome: ModelOutcome) => void;
}

export class DesiredState {
  readonly #asked: { unload: Asked | null; reload: Asked | null } = { unload: null, reload: null };
  readonly #flags = { evict: false, idle: false };
  #isReloadLast = false;

  /** Settles with what became of it. All who wish for the same at a time share one promise. */
  call(wish: "unload" | "reload"): Promise<ModelOutcome> {
    this.#isReloadLast = wish === "reload";
    this.#asked[wish] ??= createAsked();
    return this.#asked[wish].answer;
  }

  flag(wish: "evict" | "idle"): void {
    this.#flags[wish] = true;
  }

  unflag(wish: "evict" | "idle"): void {
    this.#flags[wish] = false;
  }

  has(wish: UnloadReason): boolean {
    return wish === "evict" || wish === "idle" ? this.#flags[wish] : this.#asked[wish] !== null;
  }

  /** Why it is to leave; null where it may stay. */
  get departure(): UnloadReason | null {
    return departures.find((wish) => this.has(wish)) ?? null;
  }

  /** It is to leave, and does not come back to the seat it has. */
  get freesSeat(): boolean {
    return this.departure !== null && this.departure !== "reload";
  }

  /** It is to be loaded in the end. */
  get wantsLoaded(): boolean {
    return this.has("reload") && (this.#isReloadLast || !this.has("unload"));
  }

  /** It has been loaded, or could not be. */
  loaded(outcome: ModelOutcome): void {
    if (!this.has("unload") || !this.#isReloadLast) this.#settle("reload", outcome);
  }

  /** It is not in memory: nobody wants that of it any more. */
  departed(outcome: ModelOutcome): void {
    this.unflag("evict");
    this.unflag("idle");
    if (!this.wantsLoaded) this.#settle("reload", outcome);
    this.#settle("unload", { ...outcome, error: null });
  }

  /** Nothing is done for it any more. */
  end(outcome: ModelOutcome): void {
    this.#settle("reload", outcome);
    this.#settle("unload", outcome);
  }

  #settle(wish: "unload" | "reload", outcome: ModelOutcome): void {
    this.#asked[wish]?.settle(outcome);
    this.#asked[wish] = null;
  }
}

function createAsked(): Asked {
  let settle = (_outcome: ModelOutcome): void => {};
  const answer = new Promise<ModelOutcome>((resolve) => {
    settle = resolve;
  });
  return { answer, settle };
}
