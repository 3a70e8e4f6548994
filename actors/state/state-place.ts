// State place: the module of the state thread, which runs the actors whose data outlives a request. Each actor has a named
// store. All stores share one LMDB environment, or the memory of the thread.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import { type RemovedStore, removeEarlierStore } from "../../runtime/store/earlier-store.ts";
import { LmdbTables } from "../../runtime/store/lmdb-tables.ts";
import { MemoryTables } from "../../runtime/store/memory-tables.ts";
import { Stores } from "../../runtime/store/stores.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { type Files, fileLimits, type StoredFile } from "../api/agent/files.ts";
import { type Sessions, sessionLimits } from "../api/agent/sessions.ts";
import { type Skills, skillLimits } from "../api/agent/skills.ts";
import type { StoredResponses, Turn } from "../api/stored-responses.ts";
import { documentText } from "../files/documents/document-text.ts";
import type { StatePlaceInit, StatePlaceReady } from "../messages.ts";
import { FileContents } from "./file-contents.ts";
import { FileStore } from "./file-store.ts";
import { type KeptHead, ResponseStore } from "./response-store.ts";
import { type KeptSession, SessionStore } from "./session-store.ts";
import { SkillContents } from "./skill-contents.ts";
import { SkillFolders, type Warn } from "./skill-folders.ts";
import { type KeptSkill, SkillStore } from "./skill-store.ts";

const SWEEP_MS = 10 * 60_000;
/** Folder of the LMDB environment. Its name is kept for servers with existing data, although it contains not only responses. */
const folderName = "stored-responses";
/** Name of the store whose tables have no name prefix. */
const firstStore = "responses";

/** Protocol of the actor `files`. */
type FileProtocol = Omit<Files, "stagingFolder">;
/** Protocol of the actor `skills`. */
type SkillProtocol = Omit<Skills, "stagingFolder">;

const fileStoreLimits = {
  maxEntries: fileLimits.maxFiles,
  // The metadata of a file is small; the contents have their own limit.
  maxBytes: 256 * 2 ** 20,
  maxEntryBytes: 2 ** 20,
  maxAgeMs: fileLimits.lifetimeMs,
};

const sessionStoreLimits = {
  // The session store itself removes the least recently used session above the limit.
  maxEntries: 2 * sessionLimits.maxSessions,
  maxBytes: 2 ** 30,
  maxEntryBytes: sessionLimits.maxSessionBytes,
  maxAgeMs: 365 * 24 * 3_600_000,
};

const skillStoreLimits = {
  // The skill store itself refuses skills above the limit, so that none is ever removed to make room.
  maxEntries: 2 * skillLimits.maxSkills,
  maxBytes: 2 ** 30,
  maxEntryBytes: 2 ** 20,
  maxAgeMs: 100 * 365 * 24 * 3_600_000,
};

/** Starts the thread. Reports the store of an earlier release if it was removed. Throws config_invalid. */
export async function start(place: PlaceContext<StatePlaceInit>): Promise<StatePlaceReady> {
  const { folder, responses, mailboxLimit, maxFileContentBytes } = place.init;
  const tables = folder === null ? new MemoryTables() : new LmdbTables(join(folder, folderName));
  const state = new Stores(tables, firstStore);
  const responseStore = new ResponseStore(state.store<KeptHead>("responses", responses));
  place.system.spawn<StoredResponses>("responses", behaviourOf(responseStore), { mailboxLimit });
  const base = folder ?? (await temporaryFolder(place));
  const contents = new FileContents(join(base, "files"));
  await contents.open();
  const fileStore = new FileStore({
    store: state.store<StoredFile>("files", fileStoreLimits),
    contents,
    maxContentBytes: maxFileContentBytes,
    extractText: (path, mimeType, client) =>
      documentText({ path, mimeType, client, maxCharacters: fileLimits.inputPreviewCharacters }),
  });
  place.system.spawn<FileProtocol>("files", filesBehaviour(fileStore), { mailboxLimit });
  const sessionStore = new SessionStore(state.store<KeptSession>("sessions", sessionStoreLimits));
  place.system.spawn<Sessions>("sessions", sessionsBehaviour(sessionStore), { mailboxLimit });
  const warn: Warn = (fields, message) => place.progress({ fields, message });
  const skillStore = await openSkills(state, join(base, "skills"), place.init.skillsFolder, warn);
  place.system.spawn<SkillProtocol>("skills", skillsBehaviour(skillStore), { mailboxLimit });
  const removed = folder === null ? null : await tryToRemoveEarlier(join(folder, "responses"));
  if (removed !== null) warn(removed, "stored responses of an earlier version cannot be read, and were removed");
  // A failed sweep is repeated after the next interval.
  const sweep = (): void => {
    for (const store of [responseStore, fileStore, sessionStore, skillStore]) void store.sweep().catch(() => {});
  };
  sweep();
  setInterval(sweep, SWEEP_MS).unref();
  return { stagingFolder: contents.stagingFolder, skillStagingFolder: skillStore.stagingFolder };
}

async function openSkills(state: Stores, folder: string, skillsFolder: string | null, warn: Warn): Promise<SkillStore> {
  const contents = new SkillContents(folder);
  await contents.open();
  const folders = new SkillFolders(skillsFolder, warn);
  await folders.check();
  return new SkillStore({ store: state.store<KeptSkill>("skills", skillStoreLimits), contents, folders });
}

/** Creates a folder for the contents of files and skills if the state is in memory. It is removed when the thread stops. */
async function temporaryFolder(place: PlaceContext<StatePlaceInit>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-files-"));
  place.onStop(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Removes the store of an earlier release. null: nothing was removed. A failed removal is retried at the next start. */
async function tryToRemoveEarlier(folder: string): Promise<RemovedStore | null> {
  try {
    return await removeEarlierStore(folder);
  } catch {
    return null;
  }
}

/**
 * Returns the message handlers. Handlers that wait for the disk or read in steps reply later, so
 * they do not block other messages.
 */
function behaviourOf(store: ResponseStore): Behaviour<StoredResponses> {
  return {
    add: (response) => new DeferredReply(store.add(response)),
    update: (update) => new DeferredReply(store.update(update)),
    find: (id) => store.find(id),
    list: (request) => new DeferredReply(store.list(request)),
    delete: (id) => new DeferredReply(store.delete(id)),
    slice: async (request) => {
      const slice = await store.slice(request);
      return slice === null ? null : new Moved(slice, [slice.buffer as ArrayBuffer]);
    },
    page: (request) => store.page(request),
    item: (request) => store.item(request),
    history: (id) => new DeferredReply(store.history(id).then(moved)),
    onStop: () => store.onStop(),
  };
}

function moved(turns: readonly Turn[]): Moved<readonly Turn[]> {
  const buffers = turns.flatMap(({ items: { texts, ends } }) => [texts.buffer, ends.buffer]);
  return new Moved(turns, buffers as ArrayBuffer[]);
}

function filesBehaviour(store: FileStore): Behaviour<FileProtocol> {
  return {
    add: (file) => new DeferredReply(store.add(file)),
    list: (request) => store.list(request),
    find: (id) => store.find(id),
    content: (id) => new DeferredReply(store.content(id)),
    delete: (id) => new DeferredReply(store.delete(id)),
    onStop: () => store.onStop(),
  };
}

function sessionsBehaviour(store: SessionStore): Behaviour<Sessions> {
  return {
    find: (id) => new DeferredReply(store.find(id)),
    list: (request) => store.list(request),
    match: (request) => new DeferredReply(store.match(request)),
    update: (update) => new DeferredReply(store.update(update)),
    put: (request) => new DeferredReply(store.put(request)),
    delete: (id) => new DeferredReply(store.delete(id)),
    onStop: () => store.onStop(),
  };
}

function skillsBehaviour(store: SkillStore): Behaviour<SkillProtocol> {
  return {
    add: (upload) => new DeferredReply(store.add(upload)),
    list: () => new DeferredReply(store.list()),
    find: (id) => new DeferredReply(store.find(id)),
    content: (version) => new DeferredReply(store.content(version)),
    pack: (version) => new DeferredReply(store.pack(version)),
    delete: (id) => new DeferredReply(store.delete(id)),
    deleteVersion: (version) => new DeferredReply(store.deleteVersion(version)),
    onStop: () => store.onStop(),
  };
}
