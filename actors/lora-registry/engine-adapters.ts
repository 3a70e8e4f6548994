// Owns what the engine of one model holds: asks its place to load and free adapters, one ask after the other. Knows nothing of
// aliases; ModelAdapters says what is to be there, and has what nobody needs freed before it brings in what is new.
import { setTimeout as sleep } from "node:timers/promises";
import type { Ref } from "../../runtime/actor/ref.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { ModelProtocol } from "../messages.ts";
import type { AdapterVersion } from "./adapter-version.ts";

/** For what an engine copies to its device; gibibytes take their time. */
const loadTimeoutMs = 600_000;
/** Its last sequences end at the next step, which may be a long one. */
const unloadTimeoutMs = 60_000;
/** Of a place that has too much to do to be asked. */
const unloadTries = 20;
const busyWaitMs = 250;

export interface EngineAdapterEvents {
  /** The engine has it no more. */
  onFreed(generation: AdapterVersion): void;
  /** It could not be freed. */
  onError(error: unknown, id: number): void;
}

export class EngineAdapters {
  readonly #events: EngineAdapterEvents;
  #model: Ref<ModelProtocol> | null = null;
  /** What the place that was attached last holds; it may be dead. */
  readonly #held = new Set<number>();
  /** What is to be freed at the next opportunity. */
  readonly #unneeded: AdapterVersion[] = [];
  #lastTurn: Promise<unknown> = Promise.resolve();

  constructor(events: EngineAdapterEvents) {
    this.#events = events;
  }

  /** Frees it in a turn of its own, or in one that is due before. */
  free(generation: AdapterVersion): void {
    this.#unneeded.push(generation);
    void this.inTurn(() => this.freeUnneeded());
  }

  /** Runs the task when those before it are done. What is below is called in a turn only, where nobody interferes. */
  inTurn<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#lastTurn.then(task);
    this.#lastTurn = turn.catch(() => {});
    return turn;
  }

  /** A new place that holds nothing takes the place of the old one, which is gone. */
  restarted(model: Ref<ModelProtocol>): void {
    this.#model = model;
    this.#held.clear();
  }

  /**
   * Throws what the place refuses it for, `timeout`, and `peer_gone` where there is no place any more; then it does not hold
   * it, or will not soon. Before there was a place it does nothing: who attaches the first one loads all there is.
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

  /** Whether it holds what nobody needs. */
  get isBehind(): boolean {
    return this.#unneeded.length > 0;
  }

  /** Frees what is due, and what becomes due meanwhile. */
  async freeUnneeded(): Promise<void> {
    for (let next = this.#unneeded.shift(); next !== undefined; next = this.#unneeded.shift()) {
      await this.unload(next);
      this.#events.onFreed(next);
    }
  }

  /** Nobody waits for it any more, but the place may still be loading it. */
  #freeWhenLoaded(adapter: AdapterVersion): void {
    this.#held.add(adapter.id);
    this.free(adapter);
  }

  /** Frees it, if it is there. Never rejects: whoever asked for the unloading has been answered. */
  async unload({ id }: AdapterVersion): Promise<void> {
    if (!this.#held.delete(id)) return;
    for (let triesLeft = unloadTries; triesLeft > 0; triesLeft--) {
      try {
        await this.#model?.ask("unloadAdapter", { id }, { timeoutMs: unloadTimeoutMs });
        return;
      } catch (error) {
        const { code } = toErrorRecord(error);
        // The memory of a place that is gone, or about to be, goes with it.
        if (code === "peer_gone" || code === "draining") return;
        if (code !== "mailbox_full" || triesLeft === 1) return this.#events.onError(error, id);
        await sleep(busyWaitMs);
      }
    }
  }
}
