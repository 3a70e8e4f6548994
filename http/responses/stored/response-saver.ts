// Response saver: writes responses to the store. Tracks the writes in progress, and handles a store that refuses a response, does
// not answer, or has evicted the response meanwhile. Used by responses.ts.
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import type { Log } from "../../observe/log.ts";
import { type AnswerLease, AnswerMemory } from "../../shared/answer/answer-memory.ts";

/** Until a save is tried once more: a state place that has ended is back by then. */
const RETRY_MS = 1000;
/** Long responses that are saved at once. */
const LONG_SAVES = 2;
/** Most bytes of the responses that wait to be saved; of one client's, half as many: all that it may have in the background. */
const MAX_WAITING_BYTES = 512 * 2 ** 20;

/** A response that has ended. */
export interface SavedResponse {
  readonly id: string;
  readonly client: string;
  /** Few long ones are saved at once: what is kept of one is made when it is saved. */
  readonly isLong: boolean;
  /** About how many bytes it holds until it is saved. */
  readonly heldBytes: number;
  /** What became of it: the whole of it first, then what is kept where that is too large. Each may reject as `add` does. */
  ends(): Iterable<Promise<ResponseUpdate>>;
  /** What is kept of one that may not wait to be saved. */
  shortEnd(): Promise<ResponseUpdate>;
  /** The same with all that was known before. */
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
  /** The last save of each that is on its way. */
  readonly #pending = new Map<string, Promise<unknown>>();
  /** Places for saves of long responses, for which clients take turns. */
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

  /**
   * Keeps how one has ended; `wasAdded` says whether it has been added before. Where what waits to be saved holds too many bytes,
   * only a short record of it is kept, at once. Never rejects.
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
      // Without a place: others are saved meanwhile.
      await sleep(this.#retryMs);
      // A second failure says what the first one has said; the response is found as interrupted, if at all.
      await save().catch(() => {});
    }
  }

  async #endShort(response: SavedResponse, wasAdded: Promise<boolean>): Promise<void> {
    const isThere = await wasAdded;
    const text = "a response was not kept as a whole: those that wait to be saved hold too many bytes";
    this.#log.error({ response: response.id }, text);
    try {
      await this.#write(response, await response.shortEnd(), isThere);
    } catch (error) {
      this.#notKept(response, error);
    }
  }

  #notKept({ id }: SavedResponse, error: unknown): void {
    this.#log.error({ response: id, err: error }, "a response could not be kept");
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
