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

export class McpSessionStore implements McpSessions {
  readonly #store: Store<SharedMcpSession>;

  constructor(store: Store<SharedMcpSession>) {
    this.#store = store;
  }

  async put({ id, client, initialize, idleMs }: Parameters<McpSessions["put"]>[0]): Promise<void> {
    const head = { client, initialize };
    await this.#store.put(id, { head, share: client, parts: {}, expiresAt: wallTime() + idleMs });
  }

  async find({ id, idleMs }: Parameters<McpSessions["find"]>[0]): Promise<SharedMcpSession | null> {
    const kept = await this.#store.get(id);
    if (kept === null) return null;
    const now = wallTime();
    // The expiry is not extended at each request, because a write costs more than a read. It does not matter if another replica
    // extends it first.
    if ((kept.expiresAt ?? 0) - now < idleMs / 2) {
      await this.#store.compareAndSet(id, kept.version, { ...kept, expiresAt: now + idleMs });
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
