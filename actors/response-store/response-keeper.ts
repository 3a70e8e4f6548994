// Owns the stored responses: an actor over a store. It runs on the state place, or in memory where nothing is to outlive the
// process. Knows which of them nobody will ever finish.
import { setImmediate as nextTurn } from "node:timers/promises";
import { ServerError } from "../../runtime/errors.ts";
import type { Entry, Store } from "../../runtime/store/store.ts";
import type {
  FoundResponse,
  Runner,
  StoredResponse,
  StoredResponses,
  Turn,
  UpdateOutcome,
} from "../stored-responses.ts";
import { isAlive, ownIdentity } from "./process-identity.ts";

/** Responses one conversation goes back. */
const MAX_HISTORY = 1024;
const MAX_HISTORY_LENGTH = 16 * 2 ** 20;

/** What lies in the store of a response where conversations are read. */
export interface KeptHead extends Pick<StoredResponse, "previousId" | "isRunning" | "items" | "inputCount"> {
  /** The process that generates it. */
  readonly owner: string;
  /**
   * Deleted by one server while another generates it: stands for it until that one comes to write its end, which would
   * otherwise bring it back.
   */
  readonly isDeleted: boolean;
}

export type KeptBulk = Pick<StoredResponse, "body" | "events">;

export class ResponseKeeper implements StoredResponses {
  readonly #store: Store<KeptHead, KeptBulk>;
  readonly #owner = ownIdentity();

  constructor(store: Store<KeptHead, KeptBulk>) {
    this.#store = store;
  }

  async add(response: StoredResponse): Promise<void> {
    await this.#store.put(response.id, this.#entry(response));
  }

  async update(response: StoredResponse): Promise<UpdateOutcome> {
    const { id } = response;
    if ((await this.#store.head(id))?.isDeleted === true) {
      await this.#store.delete(id);
      return "deleted";
    }
    return (await this.#store.replace(id, this.#entry(response))) ? "updated" : "evicted";
  }

  async get(id: string): Promise<FoundResponse | null> {
    const kept = await this.#store.get(id);
    if (kept === null || kept.head.isDeleted) return null;
    const { previousId, items, inputCount } = kept.head;
    return { id, previousId, items, inputCount, ...kept.rest, runner: this.#runner(kept.head) };
  }

  async delete(id: string): Promise<boolean> {
    const head = await this.#store.head(id);
    if (head === null || head.isDeleted) return false;
    if (this.#runner(head) !== "elsewhere") return await this.#store.delete(id);
    const nothing = { body: "", events: null };
    return await this.#store.replace(id, { head: { ...head, items: "[]", isDeleted: true }, rest: nothing });
  }

  async history(id: string): Promise<readonly Turn[]> {
    const turns: Turn[] = [];
    let length = 0;
    for (let at: string | null = id; at !== null; ) {
      const head: KeptHead | null = await this.#store.head(at);
      if (head === null || head.isDeleted) throw missing(at, id);
      turns.push({ id: at, runner: this.#runner(head), items: head.items });
      length += head.items.length;
      if (turns.length > MAX_HISTORY || length > MAX_HISTORY_LENGTH) throw tooLong(id);
      at = head.previousId;
      // Others want something of this thread too.
      await nextTurn();
    }
    return turns.reverse();
  }

  async onStop(): Promise<void> {
    await this.#store.close();
  }

  #entry(response: StoredResponse): Entry<KeptHead, KeptBulk> {
    const { previousId, isRunning, items, inputCount, body, events } = response;
    const head = { previousId, isRunning, items, inputCount, owner: this.#owner, isDeleted: false };
    return { head, rest: { body, events } };
  }

  #runner({ isRunning, owner }: KeptHead): Runner | null {
    if (!isRunning) return null;
    if (owner === this.#owner) return "here";
    return isAlive(owner) ? "elsewhere" : "nobody";
  }
}

function missing(id: string, from: string): ServerError {
  const text =
    id === from
      ? `Response with ID '${id}' not found`
      : `Response with ID '${id}' not found, which '${from}' goes on from: it has been deleted or has expired`;
  return new ServerError("not_found", text, { param: "previous_response_id" });
}

function tooLong(id: string): ServerError {
  const text = `'${id}' goes on from more than ${MAX_HISTORY} responses or ${MAX_HISTORY_LENGTH} characters; send its items as input`;
  return new ServerError("invalid_value", text, { param: "previous_response_id" });
}
