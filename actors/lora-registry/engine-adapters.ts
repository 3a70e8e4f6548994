// EngineAdapters: the adapters that the engine of one model holds. Asks the model's place to load and free them, one at a
// time. ModelAdapters decides which, and has unneeded ones freed before it loads new ones.
import { setTimeout as sleep } from "node:timers/promises";
import type { Ref } from "../../runtime/actor/ref.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { ModelProtocol } from "../messages.ts";
import type { AdapterVersion } from "./adapter-version.ts";

/** The engine may copy gibibytes to its device. */
const loadTimeoutMs = 600_000;
/** The last sequences of the adapter end at the next step, which may be long. */
const unloadTimeoutMs = 60_000;
/** Attempts, and the wait between them, while the mailbox of the place is full. */
const unloadTries = 20;
const busyWaitMs = 250;

export interface EngineAdapterEvents {
  /** The engine no longer holds it. */
  onFreed(version: AdapterVersion): void;
  /** An adapter could not be freed. */
  onError(error: unknown, id: number): void;
}

export class EngineAdapters {
  readonly #events: EngineAdapterEvents;
  #model: Ref<ModelProtocol> | null = null;
  /** Ids of the adapters that the present place holds; the place may have ended. */
  readonly #held = new Set<number>();
  /** Adapters to free at the next opportunity. */
  readonly #unneeded: AdapterVersion[] = [];
  /** Never rejects. */
  #lastTask: Promise<unknown> = Promise.resolve();

  constructor(events: EngineAdapterEvents) {
    this.#events = events;
  }

  /** Frees it as a task of its own, or as part of an earlier one. */
  free(version: AdapterVersion): void {
    this.#unneeded.push(version);
    void this.inOrder(() => this.freeUnneeded());
  }

  /** Runs the tasks one after the other. The methods below are called by such tasks only. */
  inOrder<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#lastTask.then(task);
    this.#lastTask = result.catch(() => {});
    return result;
  }

  /** A new place, which holds no adapters, replaces one that has ended. */
  restarted(model: Ref<ModelProtocol>): void {
    this.#model = model;
    this.#held.clear();
  }

  /**
   * Throws the refusal of the place, `timeout`, or `peer_gone` if the place has ended. After an error the place does not
   * hold the adapter, or frees it soon. Does nothing before the first place: its attach() loads all adapters.
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

  /** Adapters wait to be freed. */
  get isBehind(): boolean {
    return this.#unneeded.length > 0;
  }

  /** Frees the waiting adapters, and those that are added meanwhile. */
  async freeUnneeded(): Promise<void> {
    for (let next = this.#unneeded.shift(); next !== undefined; next = this.#unneeded.shift()) {
      await this.unload(next);
      this.#events.onFreed(next);
    }
  }

  /** After a timeout the place may still be loading it: the unload follows the load. */
  #freeWhenLoaded(adapter: AdapterVersion): void {
    this.#held.add(adapter.id);
    this.free(adapter);
  }

  /** Frees it, if it is held. Never rejects: the request to unload it has been answered already. */
  async unload({ id }: AdapterVersion): Promise<void> {
    if (!this.#held.delete(id)) return;
    for (let triesLeft = unloadTries; triesLeft > 0; triesLeft--) {
      try {
        await this.#model?.ask("unloadAdapter", { id }, { timeoutMs: unloadTimeoutMs });
        return;
      } catch (error) {
        const { code } = toErrorRecord(error);
        // The memory of a place that has ended, or is ending, is freed with it.
        if (code === "peer_gone" || code === "draining") return;
        if (code !== "mailbox_full" || triesLeft === 1) return this.#events.onError(error, id);
        await sleep(busyWaitMs);
      }
    }
  }
}
