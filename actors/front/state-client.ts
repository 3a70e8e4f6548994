// State client: the main thread's client of the state thread. Starts the thread, restarts it whenever it ends, and passes
// requests from http/ to the actors of that thread.
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { RemovedStore } from "../../runtime/store/earlier-store.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type {
  FoundResponse,
  ItemPage,
  PageRequest,
  ResponseUpdate,
  SliceRequest,
  Span,
  StoredResponse,
  StoredResponses,
  Turn,
  UpdateOutcome,
} from "../api/stored-responses.ts";
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
  readonly #options: StateFrontOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #responses: Ref<StoredResponses> | null = null;

  constructor(options: StateFrontOptions) {
    this.#options = options;
  }

  /** Starts the thread. If that fails, rejects without a retry; with config_invalid if the folder cannot be used. */
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
          // start() rejects if the first start fails, so it is not logged here.
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

  async add(response: StoredResponse): Promise<void> {
    await this.#actor().ask("add", response);
  }

  async update(update: ResponseUpdate): Promise<UpdateOutcome> {
    return await this.#actor().ask("update", update);
  }

  async find(id: string): Promise<FoundResponse | null> {
    return await this.#actor().ask("find", id);
  }

  async delete(id: string): Promise<boolean> {
    return await this.#actor().ask("delete", id);
  }

  async slice(request: SliceRequest): Promise<Uint8Array | null> {
    return await this.#actor().ask("slice", request);
  }

  async page(request: PageRequest): Promise<ItemPage | null> {
    return await this.#actor().ask("page", request);
  }

  async item(request: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null> {
    return await this.#actor().ask("item", request);
  }

  async history(id: string): Promise<readonly Turn[]> {
    return await this.#actor().ask("history", id);
  }

  #actor(): Ref<StoredResponses> {
    if (this.#responses !== null) return this.#responses;
    throw new ServerError("peer_gone", "stored responses cannot be reached now; try again soon");
  }
}
