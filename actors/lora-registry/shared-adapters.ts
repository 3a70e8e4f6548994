// Shared adapters: makes the adapters of this replica follow the loads and unloads of clients on any replica (state_url). A
// change over HTTP is first made on the replica that received it and then stored; the other replicas follow. An adapter that
// cannot be loaded on this replica is listed as a failure and retried. An alias without an entry in the shared state is left
// unchanged: it comes from the settings, or the shared state has lost its data.
import { setTimeout as sleep } from "node:timers/promises";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type {
  AdapterFailure,
  AdapterListing,
  LoadAdapterRequest,
  LoadedAdapter,
  LoraAdapters,
  UnloadAdapterRequest,
} from "../api/lora-adapters.ts";
import type { DesiredAdapter, DesiredAdapters } from "../api/state/desired-adapters.ts";
import type { Replicas } from "../api/state/replicas.ts";
import type { AdapterLog } from "./load-failure.ts";

/** Interval in ms at which all adapters are compared with the shared state. */
const AGAIN_MS = 5000;
/** Delay in ms before a failed adapter is retried. The delay doubles with each failure. */
const MIN_WAIT_MS = 4000;
const MAX_WAIT_MS = 60_000;
/** Maximum number of attempts, one second apart, to load an adapter while a client is loading another one. */
const BUSY_TRIES = 60;

export interface SharedAdaptersOptions {
  /** Adapters of this replica. */
  readonly own: LoraAdapters;
  readonly desired: DesiredAdapters;
  readonly replicas: Pick<Replicas, "id" | "ask" | "answer">;
  readonly log: AdapterLog;
}

interface Failure extends AdapterFailure {
  readonly generation: string | null;
  readonly waitMs: number;
  /** Time of the next attempt, in milliseconds of performance.now(). */
  readonly nextAt: number;
}

export class SharedAdapters implements LoraAdapters {
  readonly #options: SharedAdaptersOptions;
  /** Allows one change at a time, so that a comparison with the shared state never undoes a change that is not stored yet. */
  readonly #turns = new Gate(1);
  /** Failures of this replica, by model and alias. */
  readonly #failures = new Map<string, Failure>();
  #timer: NodeJS.Timeout | null = null;
  #isFollowing = false;
  #isStopped = false;

  constructor(options: SharedAdaptersOptions) {
    this.#options = options;
    options.replicas.answer("adapterFailures", ({ model }) => this.#ownFailures(model));
  }

  /** Loads the adapters that other replicas have. Resolves when each adapter is loaded or has failed. Call when the models are loaded. */
  async start(): Promise<void> {
    this.#options.desired.watch(() => void this.#follow());
    await this.#follow();
    this.#timer = setInterval(() => void this.#follow(), AGAIN_MS).unref();
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearInterval(this.#timer);
  }

  async load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    const loaded = this.#turns.pass(() => this.#load(request));
    // The load continues if the client disconnects.
    loaded.catch(() => {});
    return await loaded;
  }

  async unload(request: UnloadAdapterRequest): Promise<LoadedAdapter> {
    const { own, desired } = this.#options;
    const { model, alias } = request;
    return await this.#turns.pass(async () => {
      const isHere = this.#current(model, alias) !== null;
      const elsewhere = isHere ? null : await this.#desiredOf(model, alias);
      const unloaded = elsewhere === null ? await own.unload(request) : failedHere(elsewhere, request);
      await desired.set({ adapter: { model, alias, path: null, generation: null }, isNew: false });
      this.#failures.delete(keyOf(request));
      return unloaded;
    });
  }

  list(model: string): AdapterListing {
    return this.#options.own.list(model);
  }

  async failures(model: string): Promise<readonly AdapterFailure[]> {
    const others = await this.#options.replicas.ask(null, "adapterFailures", { model }, false).catch(() => []);
    return [...(this.#ownFailures(model) ?? []), ...(others as (readonly AdapterFailure[])[]).flat()];
  }

  async #load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    const { own, desired } = this.#options;
    const { model, alias, path, replace } = request;
    const elsewhere = replace ? null : await this.#desiredOf(model, alias);
    if (elsewhere !== null) throw alreadyLoaded(elsewhere);
    const wasHere = this.#current(model, alias) !== null;
    const loaded = await own.load(request);
    try {
      const adapter = { model, alias, path, generation: loaded.generation };
      if (!(await desired.set({ adapter, isNew: !replace }))) throw alreadyLoaded(adapter);
    } catch (error) {
      // The adapter could not be stored in the shared state, so it is unloaded here too. If the alias existed here before, it is
      // not unloaded: the next comparison with the shared state corrects its adapter.
      if (!wasHere) await own.unload({ model, alias, expectedGeneration: null }).catch(() => {});
      throw error;
    }
    this.#failures.delete(keyOf(request));
    return loaded;
  }

  /** Compares this replica's adapters with those in the shared state and applies the differences. Never rejects. */
  async #follow(): Promise<void> {
    // A comparison that is already queued will see all changes up to now.
    if (this.#isFollowing || this.#isStopped) return;
    this.#isFollowing = true;
    await this.#turns.pass(async () => {
      this.#isFollowing = false;
      // While the shared state is unreachable, the adapters stay unchanged.
      const all = await this.#options.desired.list().catch(() => []);
      for (const adapter of all) if (!this.#isStopped) await this.#settle(adapter);
    });
  }

  async #settle(adapter: DesiredAdapter): Promise<void> {
    const { own, replicas, log } = this.#options;
    const { model, alias, generation } = adapter;
    const current = this.#current(model, alias);
    const key = keyOf(adapter);
    const failed = this.#failures.get(key);
    if ((current?.generation ?? null) === generation) {
      this.#failures.delete(key);
      return;
    }
    const isSame = failed !== undefined && failed.generation === generation;
    if (isSame && performance.now() < failed.nextAt) return;
    try {
      if (adapter.path === null) await own.unload({ model, alias, expectedGeneration: null });
      else await this.#loadAs(adapter, adapter.path);
      this.#failures.delete(key);
    } catch (error) {
      const { code, message } = toErrorRecord(error);
      // This replica does not serve the model, so this is not a failure.
      if (code === "model_not_found") return;
      const source = adapter.path ?? "";
      const waitMs = isSame ? Math.min(failed.waitMs * 2, MAX_WAIT_MS) : MIN_WAIT_MS;
      const about = { model, alias, source, replica: replicas.id, code, message };
      this.#failures.set(key, { ...about, generation, waitMs, nextAt: performance.now() + waitMs });
      if (isSame && failed.code === code) return;
      log.error({ model, alias, source, code, reason: message }, "an adapter of the other replicas is not loaded here");
    }
  }

  async #loadAs({ model, alias, generation }: DesiredAdapter, path: string): Promise<void> {
    const { own } = this.#options;
    const request = { model, alias, path, replace: true, expectedGeneration: null };
    for (let tries = 1; ; tries++) {
      try {
        const loaded = await own.load(request);
        if (loaded.generation === generation) return;
        await own.unload({ model, alias, expectedGeneration: null });
        const text = `"${path}" has other content on this replica: expected generation ${generation}, got ${loaded.generation}; make the files equal`;
        throw new ServerError("adapter_file_changed", text, { param: "lora_path" });
      } catch (error) {
        const isBusy = error instanceof ServerError && error.code === "lora_load_busy";
        if (!isBusy || tries >= BUSY_TRIES || this.#isStopped) throw error;
        await sleep(1000);
      }
    }
  }

  #ownFailures(model: string): readonly AdapterFailure[] | null {
    const failures = [...this.#failures.values()].filter((failure) => failure.model === model);
    if (failures.length === 0) return null;
    return failures.map(({ model, alias, source, replica, code, message }) => {
      return { model, alias, source, replica, code, message };
    });
  }

  /** Returns the adapter to which an alias refers on this replica; null = no such alias, or this replica does not serve the model. */
  #current(model: string, alias: string): LoadedAdapter | null {
    try {
      return this.#options.own.list(model).adapters.find((adapter) => adapter.alias === alias) ?? null;
    } catch {
      return null;
    }
  }

  /** Returns the stored entry of an alias that clients have loaded; null = not loaded. Throws storage_unavailable. */
  async #desiredOf(model: string, alias: string): Promise<DesiredAdapter | null> {
    const all = await this.#options.desired.list();
    return all.find((one) => one.model === model && one.alias === alias && one.path !== null) ?? null;
  }
}

function keyOf({ model, alias }: Pick<DesiredAdapter, "model" | "alias">): string {
  return `${model}\n${alias}`;
}

/** Returns the result of an unload of an adapter that only other replicas have loaded. Throws lora_generation_mismatch. */
function failedHere(adapter: DesiredAdapter, { expectedGeneration }: UnloadAdapterRequest): LoadedAdapter {
  const { alias, path, generation } = adapter;
  if (expectedGeneration !== null && expectedGeneration !== generation) {
    const text = `adapter "${alias}" is generation ${generation}, not ${expectedGeneration}; list the adapters and decide again`;
    throw new ServerError("lora_generation_mismatch", text, { param: "expected_generation" });
  }
  return { alias, source: path ?? "", revision: null, generation: generation ?? "", rank: 0, bytes: 0 };
}

function alreadyLoaded({ alias, generation }: DesiredAdapter): ServerError {
  const text = `adapter "${alias}" is already loaded on the replicas, as generation ${generation}; set load_inplace to replace it`;
  return new ServerError("lora_adapter_already_loaded", text, { param: "lora_name" });
}
