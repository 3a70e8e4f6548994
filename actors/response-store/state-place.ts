// Owns what runs on the state place (a worker thread): the actors of what outlives the process, each over a store of its own.
import { join } from "node:path";
import { LmdbStore } from "../../runtime/store/lmdb-store.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { StatePlaceInit } from "../messages.ts";
import type { StoredResponses } from "../stored-responses.ts";
import { type KeptResponse, ResponseKeeper } from "./response-keeper.ts";

export async function start(place: PlaceContext<StatePlaceInit>): Promise<null> {
  const { folder, responses, mailboxLimit } = place.init;
  const store = await LmdbStore.open<KeptResponse>(join(folder, "responses"), responses);
  place.system.spawn<StoredResponses>("responses", new ResponseKeeper(store), { mailboxLimit });
  return null;
}
