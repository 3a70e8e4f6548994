// State place (a worker thread): runs the actors that keep what outlives a request, each over a store of its own.
import { join } from "node:path";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import { type RemovedStore, removeEarlierStore } from "../../runtime/store/earlier-store.ts";
import { LmdbTables } from "../../runtime/store/lmdb-tables.ts";
import { MemoryTables } from "../../runtime/store/memory-tables.ts";
import { storeTables, TableStore } from "../../runtime/store/table-store.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { StoredResponses, Turn } from "../api/stored-responses.ts";
import type { StatePlaceInit } from "../messages.ts";
import { type KeptHead, ResponseStore } from "./response-store.ts";

const SWEEP_MS = 10 * 60_000;

/** Reports the store of an earlier server that it has removed. */
export async function start(place: PlaceContext<StatePlaceInit>): Promise<null> {
  const { folder, responses, mailboxLimit } = place.init;
  const tables = folder === null ? new MemoryTables() : LmdbTables.open(join(folder, "stored-responses"), storeTables);
  const keeper = new ResponseStore(new TableStore<KeptHead>(tables, responses));
  place.system.spawn<StoredResponses>("responses", behaviourOf(keeper), { mailboxLimit });
  const removed = folder === null ? null : await withoutEarlier(join(folder, "responses"));
  if (removed !== null) place.progress(removed);
  // What fails is tried again at the next time.
  const sweep = (): void => void keeper.sweep().catch(() => {});
  sweep();
  setInterval(sweep, SWEEP_MS).unref();
  return null;
}

/** What cannot be removed stays, and is tried again at the next start. */
async function withoutEarlier(folder: string): Promise<RemovedStore | null> {
  try {
    return await removeEarlierStore(folder);
  } catch {
    return null;
  }
}

/** What waits for the disk, or is read bit by bit, is answered later: what comes meanwhile is served. */
function behaviourOf(keeper: ResponseStore): Behaviour<StoredResponses> {
  return {
    add: (response) => new DeferredReply(keeper.add(response)),
    update: (update) => new DeferredReply(keeper.update(update)),
    find: (id) => keeper.find(id),
    delete: (id) => new DeferredReply(keeper.delete(id)),
    slice: async (request) => {
      const slice = await keeper.slice(request);
      return slice === null ? null : new Moved(slice, [slice.buffer as ArrayBuffer]);
    },
    page: (request) => keeper.page(request),
    item: (request) => keeper.item(request),
    history: (id) => new DeferredReply(keeper.history(id).then(moved)),
    onStop: () => keeper.onStop(),
  };
}

function moved(turns: readonly Turn[]): Moved<readonly Turn[]> {
  const buffers = turns.flatMap(({ items: { texts, ends } }) => [texts.buffer, ends.buffer]);
  return new Moved(turns, buffers as ArrayBuffer[]);
}
