// Client salt: the salt for hashing client names (http/server/client.ts). It is the same on all replicas, so that a client has
// one name in the shared state. The first replica chooses it. Runs on the state thread.
import { randomBytes } from "node:crypto";
import type { Store } from "../../../runtime/store/store.ts";

const SALT_BYTES = 16;
const key = "clients";

export const clientSaltLimits = {
  maxEntries: 1,
  maxBytes: 4096,
  maxEntryBytes: 1024,
  maxAgeMs: 100 * 365 * 24 * 3_600_000,
};

/** Stores this replica's salt again if the store has lost it. */
export async function restoreClientSalt(store: Store<string>, salt: string): Promise<void> {
  await store.compareAndSet(key, null, { head: salt, share: key, parts: {} });
}

/** Returns the salt, and creates it if it does not exist yet. */
export async function clientSalt(store: Store<string>): Promise<string> {
  for (;;) {
    const kept = await store.get(key);
    if (kept !== null) return kept.head;
    const head = randomBytes(SALT_BYTES).toString("base64url");
    if (await store.compareAndSet(key, null, { head, share: key, parts: {} })) return head;
  }
}
