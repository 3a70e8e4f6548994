// Response saver: writes responses to the store and tracks pending writes. Handles a store that rejects a response, is
// unavailable, or has evicted the response. Used by responses.ts.
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import type { Log } from "../../observe/log.ts";
import { type AnswerLease, AnswerMemory } from "../../shared/answer/answer-memory.ts";

/**
 * Milliseconds before the first retry of a failed save. The interval doubles with each retry, up to LONGEST_RETRY times
 * RETRY_MS. It is short at first, because text to the client waits for the save for up to MOST_HELD_MS; a
 * planned failover of Redis can end within that time.
 */
const RETRY_MS = 50;
const LONGEST_RETRY = 80;
/**
 * Maximum number of retries of the final save. They take more than three minutes, in which a store thread or Redis may restart, or a
 * full disk may be emptied. This is less than the lifetime of a tombstone (response-store.ts), which keeps a late save from
 * restoring a deleted response.
 */
const RETRIES = 60;
/**
 * Maximum time in ms for which text with the id of a response waits for its save, and in which the first save is retried. Then the
 * text is sent although the save has not succeeded.
 */
export const MOST_HELD_MS = 1000;
/** Maximum number of these retries. */
const RETRIES_WHILE_RUNNING = 4;
/** Errors of an overloaded store. The first save is not retried after them, because retries would add load. */
const overloaded: readonly string[] = ["timeout", "mailbox_full"];
/** Maximum time in ms for which a reader of a response waits for its pending save. */
const MOST_WAIT_MS = 10_000;
/** Maximum number of concurrent saves of long responses. */
const LONG_SAVES = 2;
/**
 * Maximum total bytes of responses that wait to be saved. One client may use half of them; this half equals
 * MAX_BACKGROUND_BYTES.
 */
const MAX_WAITING_BYTES = 512 * 2 ** 20;

/** Response that has ended and is to be saved. */
export interface SavedResponse {
  readonly id: string;
  readonly client: string;
  /** Whether the response is long. Concurrent saves of long responses are limited, because each save makes a copy. */
  readonly isLong: boolean;
  /** Estimated bytes held until the response is saved. */
  readonly heldBytes: number;
  /**
   * Yields the complete final state, followed by smaller versions for the case that the store rejects it as too large. Each
   * promise may reject with the same errors as `add`.
   */
  ends(): Iterable<Promise<ResponseUpdate>>;
  /**
   * Returns the smallest version of the final state. It is stored if the responses that wait to be saved exceed
   * MAX_WAITING_BYTES.
   */
  shortEnd(): Promise<ResponseUpdate>;
  /** Returns the complete record for an update, for a response that is not in the store yet. */
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
  /** Last pending save of each response, by response id. */
  readonly #pending = new Map<string, Promise<unknown>>();
  /** Limits concurrent saves of long responses; fair between clients. */
  readonly #longSaves = new Gate(LONG_SAVES);
  readonly #waiting: AnswerMemory;
  /** Aborted when the server stops. */
  readonly #stop = new AbortController();

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

  isPending(id: string): boolean {
    return this.#pending.has(id);
  }

  /** Resolves when no save of this response is pending. Never rejects. */
  async settled(id: string): Promise<void> {
    while (this.#pending.has(id)) await this.#pending.get(id);
  }

  /** Resolves when no save of this response is pending. Throws storage_unavailable if this takes longer than MOST_WAIT_MS. */
  async readable(id: string): Promise<void> {
    if (!this.isPending(id)) return;
    const stop = new AbortController();
    const late = sleep(MOST_WAIT_MS, true, { signal: stop.signal }).catch(() => false);
    const isLate = await Promise.race([late, this.settled(id).then(() => false)]);
    stop.abort();
    if (isLate) throw notStoredYet(id);
  }

  /** Resolves when no save is pending. Called when the server stops, so each failed save is retried only once more. */
  async allSettled(): Promise<void> {
    this.#stop.abort();
    while (this.#pending.size > 0) await Promise.all(this.#pending.values());
  }

  /** Stores a running response. If all attempts fail, logs the error and throws it. */
  async add(record: StoredResponse): Promise<void> {
    const untilMs = performance.now() + MOST_HELD_MS;
    const isWorthIt = (failures: number, error: unknown): boolean => {
      if (error instanceof ServerError && overloaded.includes(error.code)) return false;
      return failures < RETRIES_WHILE_RUNNING && performance.now() < untilMs;
    };
    const adding = this.#retried(() => this.#store.add(record), isWorthIt);
    this.#track(record.id, adding);
    try {
      await adding;
    } catch (error) {
      this.#log.error({ response: record.id, err: error }, "a running response could not be stored");
      throw error;
    }
  }

  /**
   * Stores the final state of a response. `wasAdded`: whether the response was stored while it ran. If the responses that wait
   * to be saved exceed the byte limit, stores a short record instead. Never rejects.
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
    const isWorthIt = (failures: number, error: unknown): boolean => {
      if (failures === 0) this.#notKept(response, error);
      return failures < RETRIES;
    };
    await this.#retried(save, isWorthIt).catch(() => {});
  }

  /**
   * Saves, and retries a failed save while `isWorthIt`, which gets the number of earlier failures and the error. Throws the last error
   * if no attempt succeeds, if the record is too large, or if the server has stopped meanwhile.
   */
  async #retried(save: () => Promise<void>, isWorthIt: (failures: number, error: unknown) => boolean): Promise<void> {
    let waitMs = this.#retryMs;
    for (let failures = 0; ; failures++) {
      try {
        return await save();
      } catch (error) {
        const isOver = failures > 0 && this.#stop.signal.aborted;
        if (!isWorthIt(failures, error) || isTooLarge(error) || isOver) throw error;
      }
      // The wait does not count against the limit on concurrent saves, so other responses can be saved during it.
      await sleep(waitMs, undefined, { signal: this.#stop.signal }).catch(() => {});
      waitMs = Math.min(2 * waitMs, LONGEST_RETRY * this.#retryMs);
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

  /** Stores the largest version of the final state that the store accepts. Throws if no version can be stored. */
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

/** Creates the error for reading a response that exists but could not be stored yet. */
export function notStoredYet(id: string): ServerError {
  return new ServerError("storage_unavailable", `the response '${id}' is not stored yet; try again soon`);
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
