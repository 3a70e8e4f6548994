// State client: the main thread's client of the state thread. Starts the thread, restarts it whenever it ends, and passes
// requests from http/ to the actors of that thread.
import type { MessageOf } from "../../runtime/actor/behaviour.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { RemovedStore } from "../../runtime/store/earlier-store.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { StoredResponses } from "../api/stored-responses.ts";
import type { StatePlaceInit } from "../messages.ts";
import { stateModule } from "../placement.ts";

const startTimeoutMs = 30_000;
/** After the first successful start, restarts are unlimited, because a full disk may have space again later. */
const restartPolicy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  resetAfterMs: 60_000,
  maxRestarts: Number.POSITIVE_INFINITY,
};

export interface StateFrontOptions {
  readonly init: StatePlaceInit;
  readonly log: Logger;
  /** Minimum backoff of restarts; absent: the default. */
  readonly minBackoffMs?: number;
}

export class StateClient implements StoredResponses {
  readonly add = this.#asks("add");
  readonly update = this.#asks("update");
  readonly find = this.#asks("find");
  readonly delete = this.#asks("delete");
  readonly slice = this.#asks("slice");
  readonly page = this.#asks("page");
  readonly item = this.#asks("item");
  readonly history = this.#asks("history");
  readonly #options: StateFrontOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #responses: Ref<StoredResponses> | null = null;

  constructor(options: StateFrontOptions) {
    this.#options = options;
  }

  /** Starts the thread. A failed start is not retried: rejects, with config_invalid if the folder cannot be used. */
  async start(): Promise<void> {
    const { log, minBackoffMs = restartPolicy.minBackoffMs } = this.#options;
    let wasUp = false;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "state",
        start: (signal) => this.#spawn(signal, wasUp),
        policy: { ...restartPolicy, minBackoffMs },
        onUp: (place) => {
          this.#responses = this.#system.ref<StoredResponses>("responses", place.endpoint);
          wasUp = true;
          resolve();
        },
        onDown: (exit, next) => {
          this.#responses = null;
          // A failed first start is not logged here, because start() rejects with its error.
          if (exit.orderly || !wasUp) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the state place ended; nothing is kept until it is back",
          );
        },
        onEscalate: reject,
      });
    });
  }

  async #spawn(signal: AbortSignal, isRestart: boolean): Promise<Place<null>> {
    const { init, log } = this.#options;
    const onProgress = (removed: unknown): void =>
      log.warn(removed as RemovedStore, "stored responses of an earlier version cannot be read, and were removed");
    const place = { name: "state", module: stateModule, init, kind: "thread", startTimeoutMs } as const;
    try {
      return await spawnPlace({ ...place, signal, onProgress });
    } catch (thrown) {
      const { code, message } = toErrorRecord(thrown);
      // The supervisor retries after retryable errors. Every failed restart is retryable, but a failed first start is not.
      throw new ServerError(isRestart ? "peer_gone" : code === "config_invalid" ? code : "internal", message);
    }
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
  }

  /** Returns a method that sends its argument to the actor. */
  #asks<K extends keyof StoredResponses>(method: K) {
    return async (message: MessageOf<StoredResponses, K>) => await this.#actor().ask(method, message);
  }

  #actor(): Ref<StoredResponses> {
    if (this.#responses !== null) return this.#responses;
    throw new ServerError("peer_gone", "stored responses cannot be reached now; try again soon");
  }
}
