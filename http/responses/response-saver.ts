// Response saver: writes responses to the store. Tracks the writes in progress, and handles a store that refuses a response, does
// not answer, or has evicted the response meanwhile. Used by responses.ts.
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse, StoredResponses } from "../../actors/stored-responses.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Log } from "../log.ts";

/** Until a save is tried once more: a state place that has ended is back by then. */
const RETRY_MS = 1000;

/** A response that has ended. */
export interface SavedResponse {
  readonly id: string;
  /** It is long: what is kept of it is made and kept when nothing of another long one is. */
  readonly isLong: boolean;
  /** What became of it: the whole of it first, then what is kept where that is too large. Each may reject as `add` does. */
  ends(): Iterable<Promise<ResponseUpdate>>;
  /** The same with all that was known before. */
  added(update: ResponseUpdate): StoredResponse;
}

export class ResponseSaver {
  readonly #store: StoredResponses;
  readonly #log: Log;
  readonly #retryMs: number;
  /** The last save of each that is on its way. */
  readonly #pending = new Map<string, Promise<unknown>>();
  /** Settles when the long responses that have ended so far are kept. */
  #long: Promise<unknown> = Promise.resolve();

  constructor(store: StoredResponses, log: Log, retryMs: number = RETRY_MS) {
    this.#store = store;
    this.#log = log;
    this.#retryMs = retryMs;
  }

  pendingIds(): Iterable<string> {
    return this.#pending.keys();
  }

  /** Settles when nothing of a response is on its way any more. Never rejects. */
  async settled(id: string): Promise<void> {
    while (this.#pending.has(id)) await this.#pending.get(id);
  }

  async allSettled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending.values());
  }

  /** Keeps one that runs. Throws, and logs, why it cannot be kept. */
  async add(record: StoredResponse): Promise<void> {
    const adding = this.#store.add(record);
    this.#track(record.id, adding);
    try {
      await adding;
    } catch (error) {
      this.#log.error({ response: record.id, err: error }, "a response could not be kept while it runs");
      throw error;
    }
  }

  /** Keeps how one has ended; `wasAdded` says whether it has been added before. Never rejects. */
  async end(response: SavedResponse, wasAdded: Promise<boolean>): Promise<void> {
    const keep = () => this.#end(response, wasAdded);
    const ending = response.isLong ? this.#long.then(keep) : keep();
    if (response.isLong) this.#long = ending.catch(() => {});
    this.#track(response.id, ending);
    await ending;
  }

  #track(id: string, saving: Promise<unknown>): void {
    const settled = saving
      .catch(() => {})
      .then(() => {
        if (this.#pending.get(id) === settled) this.#pending.delete(id);
      });
    this.#pending.set(id, settled);
  }

  async #end(response: SavedResponse, wasAdded: Promise<boolean>): Promise<void> {
    const isThere = await wasAdded;
    try {
      await this.#put(response, isThere);
    } catch (error) {
      this.#log.error({ response: response.id, err: error }, "a response could not be kept");
      if (isTooLarge(error)) return;
      await sleep(this.#retryMs);
      // A second failure says what the first one has said; the response is found as interrupted, if at all.
      await this.#put(response, isThere).catch(() => {});
    }
  }

  /** Keeps the first end that is not too large. Throws why none is kept. */
  async #put(response: SavedResponse, isThere: boolean): Promise<void> {
    let refusal: unknown;
    for (const making of response.ends()) {
      try {
        await this.#write(response, await making, isThere);
        if (refusal !== undefined) {
          this.#log.warn({ response: response.id, err: refusal }, "a response was too large to be kept as a whole");
        }
        return;
      } catch (error) {
        if (!isTooLarge(error)) throw error;
        refusal = error;
      }
    }
    throw refusal;
  }

  async #write(response: SavedResponse, end: ResponseUpdate, isThere: boolean): Promise<void> {
    if (isThere && (await this.#store.update(end)) !== "evicted") return;
    if (isThere) {
      const text = "a response had been evicted from the store when it ended; it is stored again";
      this.#log.warn({ response: response.id }, text);
    }
    await this.#store.add(response.added(end));
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof ServerError && error.code === "invalid_value";
}
