// EngineAdapters: the adapters that the engine of one model has loaded. Requests the model's worker (a thread or process) to load
// and free them, one at a time. ModelAdapters decides which adapters to load and free. Unneeded adapters are freed before new
// ones are loaded.
import { setTimeout as sleep } from "node:timers/promises";
import type { Ref } from "../../runtime/actor/ref.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { ModelProtocol } from "../messages.ts";
import type { AdapterVersion } from "./adapter-version.ts";

/** Timeout of a load in ms. Long, because the engine may copy gibibytes to its device. */
const loadTimeoutMs = 600_000;
/** Timeout of an unload in ms. The adapter's last sequences end at the next step, which may take long. */
const unloadTimeoutMs = 60_000;
/** Maximum number of attempts to unload while the worker's mailbox is full, and the delay between two attempts. */
const unloadTries = 20;
const busyWaitMs = 250;

export interface EngineAdapterEvents {
  /** Called when the engine has freed an adapter. */
  onFreed(version: AdapterVersion): void;
  /** Called when an adapter could not be freed. */
  onError(error: unknown, id: number): void;
}

export class EngineAdapters {
  readonly #events: EngineAdapterEvents;
  #model: Ref<ModelProtocol> | null = null;
  /** Ids of the adapters loaded in the latest worker. The worker may have ended. */
  readonly #held = new Set<number>();
  /** Adapters that wait to be freed. */
  readonly #unneeded: AdapterVersion[] = [];
  /** Promise of the latest task, for which the next task waits. Never rejects. */
  #lastTask: Promise<unknown> = Promise.resolve();

  constructor(events: EngineAdapterEvents) {
    this.#events = events;
  }

  /** Queues an adapter to be freed, without waiting for the result. */
  free(version: AdapterVersion): void {
    this.#unneeded.push(version);
    void this.inOrder(() => this.freeUnneeded());
  }

  /** Runs tasks one after another. The methods below must be called only within such a task. */
  inOrder<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#lastTask.then(task);
    this.#lastTask = result.catch(() => {});
    return result;
  }

  /** Switches to the model's new worker after the old one has ended. The new worker has no adapters loaded. */
  restarted(model: Ref<ModelProtocol>): void {
    this.#model = model;
    this.#held.clear();
  }

  /**
   * Loads an adapter. Throws the worker's error, `timeout`, or `peer_gone` if the worker has ended. After an error, the adapter
   * is not loaded, or will be freed soon. Does nothing before the first start of the worker, because attach() then loads all
   * adapters.
   */
  async load(adapter: AdapterVersion): Promise<void> {
    if (this.#model === null) return;
    const { id, prepared } = adapter;
    const { generation, path } = prepared;
    try {
      await this.#model.ask("loadAdapter", { id, generation, path }, { timeoutMs: loadTimeoutMs });
      this.#held.add(id);
    } catch (error) {
      if (toErrorRecord(error).code === "timeout") this.#freeWhenLoaded(adapter);
      throw error;
    }
  }

  /** Whether adapters wait to be freed. */
  get isBehind(): boolean {
    return this.#unneeded.length > 0;
  }

  /** Frees the waiting adapters, including those added during the call. */
  async freeUnneeded(): Promise<void> {
    for (let next = this.#unneeded.shift(); next !== undefined; next = this.#unneeded.shift()) {
      await this.unload(next);
      this.#events.onFreed(next);
    }
  }

  /** Queues an unload after a load has timed out. If the worker still finishes the load, it then processes the unload. */
  #freeWhenLoaded(adapter: AdapterVersion): void {
    this.#held.add(adapter.id);
    this.free(adapter);
  }

  /** Frees an adapter if it is loaded. Never rejects, because the client already has the reply to its unload request. */
  async unload({ id }: AdapterVersion): Promise<void> {
    if (!this.#held.delete(id)) return;
    for (let triesLeft = unloadTries; triesLeft > 0; triesLeft--) {
      try {
        await this.#model?.ask("unloadAdapter", { id }, { timeoutMs: unloadTimeoutMs });
        return;
      } catch (error) {
        const { code } = toErrorRecord(error);
        // When a worker ends, its memory is freed, so this adapter needs no unload.
        if (code === "peer_gone" || code === "draining") return;
        if (code !== "mailbox_full" || triesLeft === 1) return this.#events.onError(error, id);
        await sleep(busyWaitMs);
      }
    }
  }
}
