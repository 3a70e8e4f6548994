// MCP session store: the sessions of the MCP server, shared by all replicas. Runs on the state thread.
import { wallTime } from "../../../runtime/clock.ts";
import type { Store } from "../../../runtime/store/store.ts";
import type { McpSessions, SharedMcpSession } from "../../api/state/mcp-sessions.ts";

/** Limits of the store. A client whose session was removed must begin a new one. */
export const mcpSessionLimits = {
  maxEntries: 65_536,
  maxBytes: 256 * 2 ** 20,
  maxEntryBytes: 64 * 1024,
  maxAgeMs: 365 * 24 * 3_600_000,
};

/** Lifetime of a session that has been stored or extended, as a multiple of its idle time. */
const LIFETIME = 1.5;
/**
 * Remaining lifetime below which a use extends it, as a multiple of the idle time. Not every use does, because a write costs more
 * than a read. It is above 1 because a session with incomplete responses is marked as used only at intervals: after the last of
 * them has ended, its whole idle time must remain.
 */
const LOW_LIFETIME = 1.25;

export class McpSessionStore implements McpSessions {
  readonly #store: Store<SharedMcpSession>;
  /** Returns milliseconds since 1970. */
  readonly #now: () => number;

  constructor(store: Store<SharedMcpSession>, now: () => number = wallTime) {
    this.#store = store;
    this.#now = now;
  }

  async put({ id, client, initialize, idleMs }: Parameters<McpSessions["put"]>[0]): Promise<void> {
    const head = { client, initialize };
    await this.#store.put(id, { head, share: client, parts: {}, expiresAt: this.#now() + LIFETIME * idleMs });
  }

  async find({ id, idleMs }: Parameters<McpSessions["find"]>[0]): Promise<SharedMcpSession | null> {
    const kept = await this.#store.get(id);
    if (kept === null) return null;
    const now = this.#now();
    // It does not matter if another replica extends it first.
    if ((kept.expiresAt ?? 0) - now < LOW_LIFETIME * idleMs) {
      await this.#store.compareAndSet(id, kept.version, { ...kept, expiresAt: now + LIFETIME * idleMs });
    }
    return kept.head;
  }

  async delete(id: string): Promise<void> {
    await this.#store.delete(id);
  }

  async onStop(): Promise<void> {
    await this.#store.close();
  }
}
