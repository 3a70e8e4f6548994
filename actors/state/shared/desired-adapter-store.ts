// Desired adapter store: the LoRA adapters that clients want on all replicas, one entry per alias of a model. Runs on the state thread.
import type { Store } from "../../../runtime/store/store.ts";
import type { DesiredAdapter, DesiredAdapters } from "../../api/state/desired-adapters.ts";

const PAGE_LENGTH = 200;

/** Limits of the store. Entries of unloaded aliases are kept, so that replicas whose settings load such an alias unload it. */
export const desiredAdapterLimits = {
  maxEntries: 16_384,
  maxBytes: 64 * 2 ** 20,
  maxEntryBytes: 64 * 1024,
  maxAgeMs: 100 * 365 * 24 * 3_600_000,
};

export class DesiredAdapterStore implements DesiredAdapters {
  readonly #store: Store<DesiredAdapter>;

  constructor(store: Store<DesiredAdapter>) {
    this.#store = store;
  }

  async list(): Promise<readonly DesiredAdapter[]> {
    const found: DesiredAdapter[] = [];
    let cursor: string | null = null;
    do {
      const page = await this.#store.list({ cursor, limit: PAGE_LENGTH });
      found.push(...page.entries.map(({ head }) => head));
      cursor = page.cursor;
    } while (cursor !== null);
    return found;
  }

  async set({ adapter, isNew }: Parameters<DesiredAdapters["set"]>[0]): Promise<boolean> {
    const key = `${adapter.model}\n${adapter.alias}`;
    const entry = { head: adapter, share: adapter.model, parts: {} };
    for (;;) {
      const kept = await this.#store.get(key);
      if (isNew && kept !== null && kept.head.path !== null) return false;
      if (await this.#store.compareAndSet(key, kept?.version ?? null, entry)) return true;
    }
  }

  watch(listener: () => void): void {
    this.#store.watch({ prefix: "" }, listener);
  }

  async onStop(): Promise<void> {
    await this.#store.close();
  }
}
