// State place: the module of the state thread, which runs the actors whose data outlives a request. Each actor has a store with
// a name. All stores share one LMDB environment, or the memory of the thread.
import { join } from "node:path";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import { type RemovedStore, removeEarlierStore } from "../../runtime/store/earlier-store.ts";
import { LmdbTables } from "../../runtime/store/lmdb-tables.ts";
import { MemoryTables } from "../../runtime/store/memory-tables.ts";
import { Stores } from "../../runtime/store/stores.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { StoredResponses, Turn } from "../api/stored-responses.ts";
import type { StatePlaceInit } from "../messages.ts";
import { type KeptHead, ResponseStore } from "./response-store.ts";

const SWEEP_MS = 10 * 60_000;
/** Folder of the LMDB environment. Its name is kept for servers with existing data, although it contains not only responses. */
const folderName = "stored-responses";
/** Name of the store whose tables have no name prefix. */
const firstStore = "responses";

/** Starts the thread. Reports the store of an earlier release if it was removed. */
export async function start(place: PlaceContext<StatePlaceInit>): Promise<null> {
  const { folder, responses, mailboxLimit } = place.init;
  const tables = folder === null ? new MemoryTables() : new LmdbTables(join(folder, folderName));
  const state = new Stores(tables, firstStore);
  const responseStore = new ResponseStore(state.store<KeptHead>("responses", responses));
  place.system.spawn<StoredResponses>("responses", behaviourOf(responseStore), { mailboxLimit });
  const removed = folder === null ? null : await tryToRemoveEarlier(join(folder, "responses"));
  if (removed !== null) place.progress(removed);
  // A failed sweep is repeated after the next interval.
  const sweep = (): void => void responseStore.sweep().catch(() => {});
  sweep();
  setInterval(sweep, SWEEP_MS).unref();
  return null;
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
