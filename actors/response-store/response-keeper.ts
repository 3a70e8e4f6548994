// Owns the stored responses: an actor over a store. It runs on the state place, or in memory where nothing is to outlive the
// process. Knows which of them nobody will ever finish.
import { ServerError } from "../../runtime/errors.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { FoundResponse, StoredResponse, StoredResponses } from "../stored-responses.ts";
import { isAlive, ownIdentity } from "./process-identity.ts";

/** Responses one conversation goes back. */
const MAX_HISTORY = 1024;
const MAX_HISTORY_LENGTH = 16 * 2 ** 20;

/** As it lies in the store. */
export interface KeptResponse extends StoredResponse {
  /** The process that generates it. */
  readonly owner: string;
}

export class ResponseKeeper implements StoredResponses {
  readonly #store: Store<KeptResponse>;
  readonly #owner = ownIdentity();

  constructor(store: Store<KeptResponse>) {
    this.#store = store;
  }

  async add(response: StoredResponse): Promise<void> {
    await this.#store.put(response.id, { ...response, owner: this.#owner });
  }

  async update(response: StoredResponse): Promise<boolean> {
    return await this.#store.replace(response.id, { ...response, owner: this.#owner });
  }

  async get(id: string): Promise<FoundResponse | null> {
    const kept = await this.#store.get(id);
    if (kept === null) return null;
    const { owner, ...response } = kept;
    const isInterrupted = response.isRunning && owner !== this.#owner && !isAlive(owner);
    return { ...response, isRunning: response.isRunning && !isInterrupted, isInterrupted };
  }

  async delete(id: string): Promise<boolean> {
    return await this.#store.delete(id);
  }

  async history(id: string): Promise<readonly string[]> {
    const turns: string[] = [];
    let length = 0;
    for (let at: string | null = id; at !== null; ) {
      const response: FoundResponse | null = await this.get(at);
      if (response === null) throw missing(at, id);
      if (response.isRunning) {
        const text = `the response '${at}' is still in progress; wait until it has ended, or cancel it`;
        throw new ServerError("conflict", text, { param: "previous_response_id" });
      }
      turns.push(response.items);
      length += response.items.length;
      if (turns.length > MAX_HISTORY || length > MAX_HISTORY_LENGTH) throw tooLong(id);
      at = response.previousId;
    }
    return turns.reverse();
  }

  async onStop(): Promise<void> {
    await this.#store.close();
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
