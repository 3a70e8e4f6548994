// Stores for tests of the files and sessions routes: the real implementations, in memory and in a temporary folder.
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileLimits, type StoredFile } from "../../../../actors/api/agent/files.ts";
import { FileContents } from "../../../../actors/state/file-contents.ts";
import { FileStore } from "../../../../actors/state/file-store.ts";
import { type KeptSession, SessionStore } from "../../../../actors/state/session-store.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

export interface TestStores {
  readonly files: FileStore;
  readonly sessions: SessionStore;
  /** Names of all files in the folder. */
  readonly onDisk: () => readonly string[];
  readonly dispose: () => void;
}

export async function openStores(): Promise<TestStores> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-stores-"));
  const contents = new FileContents(folder);
  await contents.open();
  const limits = { maxEntries: 4096, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: fileLimits.lifetimeMs };
  const files = new FileStore({
    store: new TableStore<StoredFile>(new MemoryTables(), limits),
    contents,
    maxContentBytes: 2 ** 30,
    extractText: async () => null,
  });
  const sessions = new SessionStore(new TableStore<KeptSession>(new MemoryTables(), limits));
  const onDisk = () => ["content", "staging"].flatMap((name) => readdirSync(join(folder, name)));
  return { files, sessions, onDisk, dispose: () => rmSync(folder, { recursive: true, force: true }) };
}
