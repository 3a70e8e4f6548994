// Owns what runs on the state place (a worker thread): the actors of what outlives the process, each over a store of its own.
import { join } from "node:path";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { Later } from "../../runtime/actor/later.ts";
import { LmdbStore } from "../../runtime/store/lmdb-store.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { StatePlaceInit } from "../messages.ts";
import type { StoredResponses } from "../stored-responses.ts";
import { type KeptBulk, type KeptHead, ResponseKeeper } from "./response-keeper.ts";

export async function start(place: PlaceContext<StatePlaceInit>): Promise<null> {
  const { folder, responses, mailboxLimit } = place.init;
  const store = await LmdbStore.open<KeptHead, KeptBulk>(join(folder, "responses"), responses);
  const keeper = new ResponseKeeper(store);
  const behaviour: Behaviour<StoredResponses> = {
    add: (response) => keeper.add(response),
    update: (response) => keeper.update(response),
    get: (id) => keeper.get(id),
    delete: (id) => keeper.delete(id),
    // A long conversation is read bit by bit, and what comes meanwhile is served.
    history: (id) => new Later(keeper.history(id)),
    onStop: () => keeper.onStop(),
  };
  place.system.spawn<StoredResponses>("responses", behaviour, { mailboxLimit });
  return null;
}
