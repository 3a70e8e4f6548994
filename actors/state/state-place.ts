// State thread: its entry module. The thread runs the actors whose data outlives a request. Each actor has a named store. All
// stores share one LMDB environment, one Redis server, or the memory of the thread.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import { ServerError } from "../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../runtime/host/optional-packages.ts";
import type { Bucket } from "../../runtime/store/bucket/bucket.ts";
import { type RemovedStore, removeEarlierStore } from "../../runtime/store/earlier-store.ts";
import { LmdbTables } from "../../runtime/store/lmdb/lmdb-tables.ts";
import { checkFormat } from "../../runtime/store/lmdb/state-format.ts";
import { MemoryTables } from "../../runtime/store/memory-tables.ts";
import type { Store, StoreLimits } from "../../runtime/store/store.ts";
import { Stores } from "../../runtime/store/stores.ts";
import type { Tables } from "../../runtime/store/tables.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { type Files, fileLimits, type StoredFile } from "../api/agent/files.ts";
import { type Sessions, sessionLimits } from "../api/agent/sessions.ts";
import { type Skills, skillLimits } from "../api/agent/skills.ts";
import type { DesiredAdapter, DesiredAdapters } from "../api/state/desired-adapters.ts";
import type { McpSessions, SharedMcpSession } from "../api/state/mcp-sessions.ts";
import type { StoredResponses, Turn } from "../api/stored-responses.ts";
import { documentText } from "../files/documents/document-text.ts";
import type { StatePlaceInit, StatePlaceReady } from "../messages.ts";
import { FileContents } from "./file-contents.ts";
import { FileStore } from "./file-store.ts";
import type { KeptHead } from "./kept-head.ts";
import { ResponseStore } from "./response-store.ts";
import { type KeptSession, SessionStore } from "./session-store.ts";
import { clientSalt, clientSaltLimits, restoreClientSalt } from "./shared/client-salt.ts";
import { DesiredAdapterStore, desiredAdapterLimits } from "./shared/desired-adapter-store.ts";
import { McpSessionStore, mcpSessionLimits } from "./shared/mcp-session-store.ts";
import { RecentResponses } from "./shared/recent-responses.ts";
import type { RestartHead } from "./shared/restarts.ts";
import type { ReplicaProtocol, SharedState, SharedStateReport } from "./shared/shared-state.ts";
import { SkillContents } from "./skill-contents.ts";
import { SkillFolders, type Warn } from "./skill-folders.ts";
import { type KeptSkill, SkillStore } from "./skill-store.ts";

const SWEEP_MS = 10 * 60_000;
/** Folder of the LMDB environment. The name is kept for existing installations, although the folder contains more than responses. */
const folderName = "stored-responses";
/** Name of the store whose tables have no name prefix. */
const firstStore = "responses";
/** Folder for local copies of files and skills that are in the shared state. */
const copiesName = "replica-copies";

/** Reports of this thread to the main thread. */
export type StateReport =
  | SharedStateReport
  /** The desired LoRA adapters may have changed. */
  | { readonly kind: "adapters" };

/** Protocol of the actor `files`. */
type FileProtocol = Omit<Files, "stagingFolder">;
/** Protocol of the actor `adapters`. */
type AdapterProtocol = Omit<DesiredAdapters, "watch">;
/** Protocol of the actor `skills`. */
type SkillProtocol = Omit<Skills, "stagingFolder">;

const fileStoreLimits = {
  maxEntries: fileLimits.maxFiles,
  // The metadata of a file is small; file contents have their own limit.
  maxBytes: 256 * 2 ** 20,
  maxEntryBytes: 2 ** 20,
  maxAgeMs: fileLimits.lifetimeMs,
};

/** Limits of the index of restartable responses. Its other limits are those of the responses. */
const restartLimits = { maxBytes: 256 * 2 ** 20, maxEntryBytes: 4096 };

/** Returns the limits for files whose contents are also in the store. */
function sharedFileLimits(maxContentBytes: number): StoreLimits {
  return {
    ...fileStoreLimits,
    maxBytes: maxContentBytes + fileStoreLimits.maxBytes,
    maxEntryBytes: fileLimits.maxFileBytes + fileStoreLimits.maxEntryBytes,
  };
}

const sessionStoreLimits = {
  // The session store itself removes the least recently used session beyond its own, lower limit.
  maxEntries: 2 * sessionLimits.maxSessions,
  maxBytes: 2 ** 30,
  maxEntryBytes: sessionLimits.maxSessionBytes,
  maxAgeMs: 365 * 24 * 3_600_000,
};

const skillStoreLimits = {
  // The skill store itself rejects skills beyond its own, lower limit, so that no skill is ever evicted.
  maxEntries: 2 * skillLimits.maxSkills,
  maxBytes: 2 ** 30,
  maxEntryBytes: 2 ** 20,
  maxAgeMs: 100 * 365 * 24 * 3_600_000,
};

/** Limits of skills whose files are also in the store. The skill store itself rejects skills beyond its own limits. */
const sharedSkillLimits = {
  ...skillStoreLimits,
  maxBytes: 2 * skillLimits.maxStoredBytes,
  maxEntryBytes: skillLimits.maxStoredBytes,
};

/** Opens stores by name. */
interface StoreSource {
  store<Head>(name: string, limits: StoreLimits): Store<Head>;
}

/** Starts the thread. Logs if the store of an earlier release was removed. Throws config_invalid. */
export async function start(place: PlaceContext<StatePlaceInit>): Promise<StatePlaceReady> {
  const { folder, responses, mailboxLimit, maxFileContentBytes } = place.init;
  const shared = await openShared(place);
  const state: StoreSource = shared ?? new Stores(openTables(folder), firstStore);
  const index = place.init.restartsBackground
    ? state.store<RestartHead>("restarts", { ...responses, ...restartLimits })
    : null;
  const recent = shared === null ? null : new RecentResponses();
  const responseStore = new ResponseStore(state.store<KeptHead>("responses", responses), shared?.owners, index, recent);
  const warn: Warn = (fields, message) => place.progress({ kind: "warning", fields, message } satisfies StateReport);
  shared?.onLoss((isLost) => responseStore.hold(isLost));
  shared?.onReplaced(async () => {
    const { restored, failed, dropped } = await responseStore.restore();
    if (restored + failed + dropped === 0) return;
    const fields = { restored, failed, dropped };
    warn(fields, "Redis was restarted or replaced; responses that it had lost were written again");
  });
  place.system.spawn<StoredResponses>("responses", behaviourOf(responseStore), { mailboxLimit });
  const base = await contentFolder(place);
  const contents = new FileContents(join(base, "files"));
  await contents.open();
  const fileStore = new FileStore({
    store: state.store<StoredFile>("files", shared === null ? fileStoreLimits : sharedFileLimits(maxFileContentBytes)),
    contents,
    sharesContents: shared !== null,
    bucket: await openBucket(place.init),
    maxContentBytes: maxFileContentBytes,
    extractText: (path, mimeType, client) =>
      documentText({ path, mimeType, client, maxCharacters: fileLimits.inputPreviewCharacters }),
  });
  place.system.spawn<FileProtocol>("files", filesBehaviour(fileStore), { mailboxLimit });
  const sessionStore = new SessionStore(state.store<KeptSession>("sessions", sessionStoreLimits));
  place.system.spawn<Sessions>("sessions", sessionsBehaviour(sessionStore), { mailboxLimit });
  const skillStore = await openSkills(state, join(base, "skills"), place.init.skillsFolder, shared !== null, warn);
  place.system.spawn<SkillProtocol>("skills", skillsBehaviour(skillStore), { mailboxLimit });
  const removed = folder === null || shared !== null ? null : await tryToRemoveEarlier(join(folder, "responses"));
  if (removed !== null) warn(removed, "stored responses of an earlier version cannot be read, and were removed");
  // A sweep that fails is repeated at the next interval.
  const sweep = (): void => {
    for (const store of [responseStore, fileStore, sessionStore, skillStore]) void store.sweep().catch(() => {});
  };
  sweep();
  setInterval(sweep, SWEEP_MS).unref();
  const salt = shared === null ? null : await sharedSalt(shared);
  shared?.ready();
  return {
    stagingFolder: contents.stagingFolder,
    skillStagingFolder: skillStore.stagingFolder,
    clientSalt: salt,
  };
}

async function sharedSalt(shared: SharedState): Promise<string> {
  const store = shared.store<string>("client-salt", clientSaltLimits);
  const salt = await clientSalt(store);
  shared.onReplaced(() => restoreClientSalt(store, salt));
  return salt;
}

/** Connects to the state that replicas share, and spawns its actor; null = this server does not share its state. */
async function openShared(place: PlaceContext<StatePlaceInit>): Promise<SharedState | null> {
  const { shared: init, mailboxLimit } = place.init;
  if (init === null) return null;
  if (!isInstalled("redis")) {
    const message = `state_url expects the package redis: ${installCommand(["redis"])}`;
    throw new ServerError("config_invalid", message, { param: "state_url" });
  }
  const { SharedState } = await import("./shared/shared-state.ts");
  const shared = await SharedState.open(init, (report) => place.progress(report), place.init.isRestart);
  place.system.spawn<ReplicaProtocol>("replicas", shared.behaviour(), { mailboxLimit });
  const adapters = new DesiredAdapterStore(shared.store<DesiredAdapter>("adapters", desiredAdapterLimits));
  adapters.watch(() => place.progress({ kind: "adapters" } satisfies StateReport));
  place.system.spawn<AdapterProtocol>("adapters", adaptersBehaviour(adapters), { mailboxLimit });
  const sessions = new McpSessionStore(shared.store<SharedMcpSession>("mcp-sessions", mcpSessionLimits));
  place.system.spawn<McpSessions>("mcpSessions", mcpSessionsBehaviour(sessions), { mailboxLimit });
  return shared;
}

/** Opens the bucket of file contents; null = file contents are in the store. Throws config_invalid. */
async function openBucket({ shared, isRestart = false }: StatePlaceInit): Promise<Bucket | null> {
  const files = shared?.files ?? null;
  if (files === null) return null;
  if (!isInstalled("s3mini")) {
    const message = `files_url expects the package s3mini: ${installCommand(["s3mini"])}`;
    throw new ServerError("config_invalid", message, { param: "files_url" });
  }
  const { Bucket } = await import("../../runtime/store/bucket/bucket.ts");
  // The first start has checked the bucket. If it is unreachable at a restart, only the contents of files must be unavailable.
  return isRestart ? new Bucket(files.url, files) : await Bucket.open(files.url, files);
}

function openTables(folder: string | null): Tables {
  if (folder === null) return new MemoryTables();
  const own = join(folder, folderName);
  checkFormat(own);
  return new LmdbTables(own);
}

/** Returns the folder for the contents of files and skills. */
async function contentFolder(place: PlaceContext<StatePlaceInit>): Promise<string> {
  const { folder, shared } = place.init;
  if (folder === null) return await temporaryFolder(place);
  return shared === null ? folder : join(folder, copiesName);
}

async function openSkills(
  state: StoreSource,
  folder: string,
  skillsFolder: string | null,
  isShared: boolean,
  warn: Warn,
): Promise<SkillStore> {
  const contents = new SkillContents(folder);
  await contents.open();
  const folders = new SkillFolders(skillsFolder, warn);
  await folders.check();
  const store = state.store<KeptSkill>("skills", isShared ? sharedSkillLimits : skillStoreLimits);
  return new SkillStore({ store, contents, folders, sharesContents: isShared });
}

/** Creates a temporary folder for the contents of files and skills, used if the state is in memory. It is removed when the thread stops. */
async function temporaryFolder(place: PlaceContext<StatePlaceInit>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-files-"));
  place.onStop(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Removes the store of an earlier release; null = nothing was removed. A failed removal is retried at the next start. */
async function tryToRemoveEarlier(folder: string): Promise<RemovedStore | null> {
  try {
    return await removeEarlierStore(folder);
  } catch {
    return null;
  }
}

/** Returns the message handlers. Handlers that wait for the disk or read in steps reply later, so that they do not block other messages. */
function behaviourOf(store: ResponseStore): Behaviour<StoredResponses> {
  return {
    add: (response) => new DeferredReply(store.add(response)),
    update: (update) => new DeferredReply(store.update(update)),
    begin: (id) => new DeferredReply(store.begin(id)),
    claim: (request) => new DeferredReply(store.claim(request)),
    giveUp: (id) => new DeferredReply(store.giveUp(id)),
    release: (id) => new DeferredReply(store.release(id)),
    find: (id) => new DeferredReply(store.find(id)),
    list: (request) => new DeferredReply(store.list(request)),
    delete: (id) => new DeferredReply(store.delete(id)),
    slice: (request) => new DeferredReply(store.slice(request).then(movedSlice)),
    page: (request) => new DeferredReply(store.page(request)),
    item: (request) => new DeferredReply(store.item(request)),
    history: (id) => new DeferredReply(store.history(id).then(moved)),
    onStop: () => store.onStop(),
  };
}

function movedSlice(slice: Uint8Array | null): Moved<Uint8Array> | null {
  return slice === null ? null : new Moved(slice, [slice.buffer as ArrayBuffer]);
}

function moved(turns: readonly Turn[]): Moved<readonly Turn[]> {
  const buffers = turns.flatMap(({ items: { texts, ends } }) => [texts.buffer, ends.buffer]);
  return new Moved(turns, buffers as ArrayBuffer[]);
}

function filesBehaviour(store: FileStore): Behaviour<FileProtocol> {
  return {
    add: (file) => new DeferredReply(store.add(file)),
    list: (request) => new DeferredReply(store.list(request)),
    find: (id) => new DeferredReply(store.find(id)),
    content: (id) => new DeferredReply(store.content(id)),
    delete: (id) => new DeferredReply(store.delete(id)),
    onStop: () => store.onStop(),
  };
}

function sessionsBehaviour(store: SessionStore): Behaviour<Sessions> {
  return {
    find: (id) => new DeferredReply(store.find(id)),
    list: (request) => new DeferredReply(store.list(request)),
    match: (request) => new DeferredReply(store.match(request)),
    update: (update) => new DeferredReply(store.update(update)),
    put: (request) => new DeferredReply(store.put(request)),
    delete: (id) => new DeferredReply(store.delete(id)),
    onStop: () => store.onStop(),
  };
}

function adaptersBehaviour(store: DesiredAdapterStore): Behaviour<AdapterProtocol> {
  return {
    list: () => new DeferredReply(store.list()),
    set: (change) => new DeferredReply(store.set(change)),
    onStop: () => store.onStop(),
  };
}

function mcpSessionsBehaviour(store: McpSessionStore): Behaviour<McpSessions> {
  return {
    put: (session) => new DeferredReply(store.put(session)),
    find: (request) => new DeferredReply(store.find(request)),
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
