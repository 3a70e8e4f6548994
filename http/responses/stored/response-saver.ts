// Response saver: writes responses to the store. Tracks the writes in progress, and handles a store that refuses a response, does
// not respond, or has evicted the response. Used by responses.ts.
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import type { Log } from "../../observe/log.ts";
import { type AnswerLease, AnswerMemory } from "../../shared/answer/answer-memory.ts";

/** Delay of the retry of a save; a failed state place has restarted by then. */
const RETRY_MS = 1000;
/** Concurrent saves of long responses. */
const LONG_SAVES = 2;
/** Bytes of all responses that wait to be saved; half of it per client, which is its limit of background requests. */
const MAX_WAITING_BYTES = 512 * 2 ** 20;

/** A finished response. */
export interface SavedResponse {
  readonly id: string;
  readonly client: string;
  /** Few long responses are saved at once, since the stored form is built during the save. */
  readonly isLong: boolean;
  /** Estimated bytes held until it is saved. */
  readonly heldBytes: number;
  /** The complete final state, then smaller versions in case it is too large. Each may reject as `add` does. */
  ends(): Iterable<Promise<ResponseUpdate>>;
  /** The smallest final state, for a response that may not wait. */
  shortEnd(): Promise<ResponseUpdate>;
  /** The complete record of an update. */
  added(update: ResponseUpdate): StoredResponse;
}

export interface SaverLimits {
  readonly retryMs?: number | undefined;
  readonly maxWaitingBytes?: number | undefined;
}

export class ResponseSaver {
  readonly #store: StoredResponses;
  readonly #log: Log;
  readonly #retryMs: number;
  /** The last pending save of each response. */
  readonly #pending = new Map<string, Promise<unknown>>();
  /** Limits the saves of long responses; fair between clients. */
  readonly #longSaves = new Gate(LONG_SAVES);
  readonly #waiting: AnswerMemory;

  constructor(store: StoredResponses, log: Log, limits: SaverLimits = {}) {
    const { retryMs = RETRY_MS, maxWaitingBytes = MAX_WAITING_BYTES } = limits;
    this.#store = store;
    this.#log = log;
    this.#retryMs = retryMs;
    this.#waiting = new AnswerMemory(maxWaitingBytes);
  }

  pendingIds(): Iterable<string> {
    return this.#pending.keys();
  }

  /** Settles when no save of a response is pending. Never rejects. */
  async settled(id: string): Promise<void> {
    while (this.#pending.has(id)) await this.#pending.get(id);
  }

  async allSettled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending.values());
  }

  /** Stores a running response. Logs and throws the error of the store. */
  async add(record: StoredResponse): Promise<void> {
    const adding = this.#store.add(record);
    this.#track(record.id, adding);
    try {
      await adding;
    } catch (error) {
      this.#log.error({ response: record.id, err: error }, "a running response could not be stored");
      throw error;
    }
  }

  /**
   * Stores the end of a response; `wasAdded`: whether it was stored while it ran. If waiting responses hold too many bytes, it
   * stores a short record immediately. Never rejects.
   */
  async end(response: SavedResponse, wasAdded: Promise<boolean>): Promise<void> {
    const lease = this.#waiting.lease(response.client);
    const isWhole = hasRoom(lease, response.heldBytes);
    const saving = isWhole ? this.#end(response, wasAdded) : this.#endShort(response, wasAdded);
    const ending = saving.finally(() => lease.release());
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
    const put = (): Promise<void> => this.#put(response, isThere);
    const save = response.isLong ? () => this.#longSaves.pass(put, response.client) : put;
    try {
      await save();
    } catch (error) {
      this.#notKept(response, error);
      if (isTooLarge(error)) return;
      // Outside the gate, so that others are saved meanwhile.
      await sleep(this.#retryMs);
      // A second failure is not logged; the response is then stored as interrupted, if at all.
      await save().catch(() => {});
    }
  }

  async #endShort(response: SavedResponse, wasAdded: Promise<boolean>): Promise<void> {
    const isThere = await wasAdded;
    const text = "a response was stored without its output: the responses that wait to be saved hold too many bytes";
    this.#log.error({ response: response.id }, text);
    try {
      await this.#write(response, await response.shortEnd(), isThere);
    } catch (error) {
      this.#notKept(response, error);
    }
  }

  #notKept({ id }: SavedResponse, error: unknown): void {
    this.#log.error({ response: id, err: error }, "a response could not be stored");
  }

  /** Stores the first final state that is not too large. Throws if none can be stored. */
  async #put(response: SavedResponse, isThere: boolean): Promise<void> {
    let refusal: unknown;
    for (const making of response.ends()) {
      try {
        await this.#write(response, await making, isThere);
        if (refusal !== undefined) {
          this.#log.warn({ response: response.id, err: refusal }, "a response was too large to be stored completely");
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
      const text = "a response was evicted from the store before its end; it is stored again";
      this.#log.warn({ response: response.id }, text);
    }
    await this.#store.add(response.added(end));
  }
}

function hasRoom(lease: AnswerLease, bytes: number): boolean {
  try {
    lease.add(bytes);
    return true;
  } catch (error) {
    if (error instanceof ServerError) return false;
    throw error;
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof ServerError && error.code === "invalid_value";
}
