// ModelAdapters: the adapters of one model, with their aliases, versions and leases. It lives on the main thread as long as the
// server runs, while the model's worker (a thread or process) may end and be restarted. Another thread prepares the adapter
// files.
//
// The adapter table is the desired state and changes immediately. The engine follows it, one operation at a time. A version that
// was removed from the table is freed later, but before a new one is loaded. A new version is first loaded, and then added to the
// table if the table's limits still permit it.
import assert from "node:assert";
import type { AdapterLimits } from "../../engines/engine.ts";
import type { AdapterSelector } from "../../engines/generation.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type ErrorCode, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { checkExpectedGeneration, checkedAlias, checkLoadPolicy } from "../api/adapter-rules.ts";
import type { AdapterEntry } from "../api/inference.ts";
import type { AdapterListing, LoadAdapterRequest, LoadedAdapter, UnloadAdapterRequest } from "../api/lora-adapters.ts";
import type { LeasedAdapter, ModelProtocol } from "../messages.ts";
import { AdapterFiles, type Prepare } from "./adapter-files.ts";
import type { AdapterLoadLock } from "./adapter-load-lock.ts";
import { AdapterTable } from "./adapter-table.ts";
import type { AdapterVersion, Content, Pointed, Wanted } from "./adapter-version.ts";
import { EngineAdapters } from "./engine-adapters.ts";
import { type AdapterLog, loadFailure, notTaken, shuttingDown } from "./load-failure.ts";
import { prepareOnPlace } from "./prepare-on-place.ts";

/** An adapter from the settings. It is loaded before the first request. */
export interface PreloadedAdapter {
  readonly alias: string;
  /** Source as written in the settings, shown in the list of adapters. */
  readonly source: string;
  readonly revision: string | null;
  /** Path of a local folder or file. */
  readonly path: string;
}

export interface AdapterSettings {
  readonly limits: AdapterLimits;
  readonly preloaded: readonly PreloadedAdapter[];
}

export interface ModelAdaptersOptions {
  readonly modelId: string;
  readonly modelPath: string;
  readonly settings: AdapterSettings;
  /** Folder of prepared adapters, which all models share. */
  readonly folder: string;
  /** Real path of SERVICE_LORA_ADAPTER_ROOT; null = not set. Preloaded adapters may be elsewhere. */
  readonly root: string | null;
  readonly gate: AdapterLoadLock;
  readonly log: AdapterLog;
  /** Runs a task on the model and keeps the model loaded during the task. Throws model_state_conflict if the model is not loaded. */
  readonly whileLoaded: <T>(task: (model: Ref<ModelProtocol>) => Promise<T>) => Promise<T>;
  /** Replacement for the preparation on a worker thread, for tests. */
  readonly prepare?: Prepare;
}

/** A lease: keeps the adapter version of a request in memory. */
export interface AdapterLease {
  readonly adapter: LeasedAdapter;
  /** Releases the lease when the request has ended. Call once. */
  release(): void;
}

/**
 * Error codes of a worker that has ended or is ending. Requests that fail with these codes are repeated after the worker has been
 * restarted.
 */
const endsOfPlaces: readonly ErrorCode[] = ["peer_gone", "draining"];

export class ModelAdapters {
  readonly #options: ModelAdaptersOptions;
  readonly #table: AdapterTable;
  readonly #engine: EngineAdapters;
  readonly #files: AdapterFiles;
  #nextId = 1;
  /** Whether the server is starting. If so, an adapter that cannot be loaded makes the start fail. */
  #isStarting = true;

  constructor(options: ModelAdaptersOptions) {
    const { modelId: model, modelPath, settings, folder, log, prepare = prepareOnPlace } = options;
    const { maxRank, maxBytes } = settings.limits;
    this.#options = options;
    this.#table = new AdapterTable(model, settings.limits);
    this.#engine = new EngineAdapters({
      onFreed: (version) => void this.#files.remove(version),
      onError: (err, adapterId) =>
        log.error({ model, adapterId, err }, "the engine did not free an adapter; its memory stays taken"),
    });
    this.#files = new AdapterFiles({
      folder,
      modelPath,
      limits: { maxRank, maxBytes },
      prepare,
      onError: (err) => log.warn({ model, err }, "the file of an unused adapter was not removed"),
    });
  }

  /** Prepares the adapters from the settings, before the model is first loaded. Throws an error with the name of the adapter. */
  async preload(): Promise<void> {
    for (const { path, ...named } of this.#options.settings.preloaded) {
      try {
        const wanted = { ...named, alias: checkedAlias(named.alias), replace: false, expectedGeneration: null };
        await this.#bringIn(wanted, path, null, "adapter prepared");
      } catch (error) {
        throw this.#naming(named.alias, error);
      }
    }
  }

  /** Call when the server has started. From then on, an adapter that cannot be reloaded is removed, and the model keeps running. */
  serverStarted(): void {
    this.#isStarting = false;
  }

  /**
   * Loads all versions into a new worker of the model, with their existing ids, before the worker accepts jobs. Rejects if the
   * worker ends or is being stopped. While the server is starting, also rejects with the first error of an adapter.
   */
  attach(model: Ref<ModelProtocol>, isEnding: () => boolean): Promise<void> {
    return this.#engine.inOrder(async () => {
      this.#engine.restarted(model);
      for (const version of this.#table.versions()) {
        // The version may have been unloaded while other versions were loaded.
        if (!this.#table.has(version)) continue;
        await this.#engine.load(version).catch((error: unknown) => {
          if (this.#isStarting || isEnding() || endsOfPlaces.includes(toErrorRecord(error).code)) {
            throw this.#naming(this.#table.aliasesOf(version)[0] ?? version.prepared.generation, error);
          }
          this.#lose(version, error);
        });
      }
    });
  }

  /** Acquires a lease on the version to which the selector currently refers. Throws invalid_value with the param `adapter`. */
  lease(selector: AdapterSelector): AdapterLease {
    const version = this.#table.lease(selector);
    let isReleased = false;
    return {
      adapter: { id: version.id, generation: version.prepared.generation },
      release: () => {
        assert(!isReleased, `a lease on adapter ${version.id} was released twice`);
        isReleased = true;
        const freed = this.#table.release(version);
        if (freed !== null) this.#engine.free(freed);
      },
    };
  }

  entries(): readonly AdapterEntry[] {
    return this.#table.entries();
  }

  list(): AdapterListing {
    return this.#table.list();
  }

  /** Implements LoraAdapters.load; the model must be loaded. All checks that need no file are made before a file is read. */
  async load({ alias, path, replace, expectedGeneration }: LoadAdapterRequest): Promise<LoadedAdapter> {
    const wanted = { alias: checkedAlias(alias), source: path, revision: null, replace, expectedGeneration };
    checkLoadPolicy(wanted);
    this.#assertOpen();
    this.#table.check(wanted);
    const { gate, root, whileLoaded } = this.#options;
    const leave = gate.enter();
    try {
      return await whileLoaded(() => this.#bringIn(wanted, path, root, "adapter loaded"));
    } catch (error) {
      const { modelId: model, log } = this.#options;
      throw loadFailure({ model, alias: wanted.alias, log }, error);
    } finally {
      leave();
    }
  }

  /** Implements LoraAdapters.unload. The model need not be loaded. */
  async unload({ alias, expectedGeneration }: UnloadAdapterRequest): Promise<LoadedAdapter> {
    checkExpectedGeneration(expectedGeneration);
    const { was, freed } = this.#table.remove(checkedAlias(alias), expectedGeneration);
    if (freed !== null) this.#engine.free(freed);
    this.#log(was, {}, "adapter unloaded");
    return was;
  }

  /** Cancels the preparation in progress, rejects further loads, and removes the files. Call at shutdown. */
  async close(): Promise<void> {
    await this.#files.close(this.#table.versions());
  }

  /** Prepares an adapter and points the alias to it. A failure changes nothing. `done`: log message for a new alias. */
  async #bringIn(wanted: Wanted, source: string, root: string | null, done: string): Promise<LoadedAdapter> {
    const startedMs = performance.now();
    const content = await this.#files.prepare(source, root);
    try {
      const { loaded, replaced } = await this.#engine.inOrder(() => this.#putInPlace(wanted, content));
      const ms = Math.round(performance.now() - startedMs);
      if (replaced === null) this.#log(loaded, { ms }, done);
      else this.#log(loaded, { replaced, ms }, "adapter replaced");
      return loaded;
    } finally {
      // The new file is not needed after a failure, or if the same content was already in memory.
      if (!this.#table.versions().some(({ home }) => home === content.home)) await this.#files.remove(content);
    }
  }

  /** Loads the content and points the alias to it, as one engine task. Repeats all checks, because the table may have changed. */
  async #putInPlace(wanted: Wanted, content: Content): Promise<Pointed> {
    // Unneeded versions may occupy memory that the new version needs. There must be no `await` between a check below and the use
    // of the check's result.
    while (this.#engine.isBehind) await this.#engine.freeUnneeded();
    this.#assertOpen();
    this.#table.checkRoom(wanted, content.prepared);
    const resident = this.#table.find(content.prepared.generation);
    if (resident !== null) return this.#point(wanted, resident);
    const version = { id: this.#nextId++, ...content };
    await this.#engine.load(version).catch((error: unknown) => {
      throw notTaken(error);
    });
    try {
      this.#assertOpen();
      return this.#point(wanted, version);
    } catch (error) {
      await this.#engine.unload(version);
      throw error;
    }
  }

  #point(wanted: Wanted, version: AdapterVersion): Pointed {
    const pointed = this.#table.point(wanted, version, Math.floor(Date.now() / 1000));
    if (pointed.freed !== null) this.#engine.free(pointed.freed);
    return pointed;
  }

  /** Removes a version that could not be reloaded. The model continues without it; requests that name it are rejected. */
  #lose(version: AdapterVersion, err: unknown): void {
    const { modelId: model, log } = this.#options;
    const aliases = this.#table.lose(version);
    const fields = { model, aliases, generation: version.prepared.generation, err };
    log.error(fields, "the model was restarted without an adapter that it had before; load the adapter again");
    void this.#files.remove(version);
  }

  #assertOpen(): void {
    if (this.#files.isClosed) throw shuttingDown();
  }

  #naming(adapter: string, error: unknown): ServerError {
    const { code, message } = toErrorRecord(error);
    const text = `lora "${adapter}" of model "${this.#options.modelId}": ${message}`;
    return new ServerError(code, text, { cause: error });
  }

  #log({ alias, generation, rank, bytes }: LoadedAdapter, more: object, message: string): void {
    this.#options.log.info({ model: this.#options.modelId, alias, generation, rank, bytes, ...more }, message);
  }
}
