// Owns the adapters of one model: aliases, the generations in memory, and who uses them. Lives on the front's thread, as
// long as the server; the model's place may come and go below it. Reading and checking files is a thread's of its own.
//
// The table says what is to be there, and changes at once; the engine follows, one ask after the other. What the table lets
// go is freed in a later turn, or before something new is loaded. What is new is loaded first, and enters the table in the
// same turn, if it still may.
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

/** An adapter to have before the first request. */
export interface PreloadedAdapter {
  readonly alias: string;
  /** As it was given, for the listing. */
  readonly source: string;
  readonly revision: string | null;
  /** A local folder or file. */
  readonly path: string;
}

/** What a served model is told about adapters. */
export interface AdapterSettings {
  readonly limits: AdapterLimits;
  readonly preloaded: readonly PreloadedAdapter[];
}

export interface ModelAdaptersOptions {
  readonly modelId: string;
  readonly modelPath: string;
  readonly settings: AdapterSettings;
  /** Where prepared adapters are kept, those of several models side by side. */
  readonly folder: string;
  /** SERVICE_LORA_ADAPTER_ROOT as a real path; null where there is none. Not for preloaded ones. */
  readonly root: string | null;
  /** The one of the server. */
  readonly gate: AdapterLoadLock;
  readonly log: AdapterLog;
  /** Runs a task on the model while it is loaded, which it stays until then. Throws model_state_conflict where it is not. */
  readonly whileLoaded: <T>(task: (model: Ref<ModelProtocol>) => Promise<T>) => Promise<T>;
  /** How adapters are made ready, where not on a place of their own: for tests. */
  readonly prepare?: Prepare;
}

/** A request's hold on the generation it began with. */
export interface AdapterLease {
  readonly adapter: LeasedAdapter;
  /** The request has ended. Once. */
  release(): void;
}

/** Codes of a place that has ended, or is about to: whatever was asked of it is asked of the next one. */
const endsOfPlaces: readonly ErrorCode[] = ["peer_gone", "draining"];

export class ModelAdapters {
  readonly #options: ModelAdaptersOptions;
  readonly #table: AdapterTable;
  readonly #engine: EngineAdapters;
  readonly #files: AdapterFiles;
  #nextId = 1;
  /** The server has not started yet: then what cannot be loaded ends it, so that somebody sees to it. */
  #isStarting = true;

  constructor(options: ModelAdaptersOptions) {
    const { modelId: model, modelPath, settings, folder, log, prepare = prepareOnPlace } = options;
    const { maxRank, maxBytes } = settings.limits;
    this.#options = options;
    this.#table = new AdapterTable(model, settings.limits);
    this.#engine = new EngineAdapters({
      onFreed: (generation) => void this.#files.remove(generation),
      onError: (err, adapterId) =>
        log.error({ model, adapterId, err }, "the engine did not free an adapter; its memory stays taken"),
    });
    this.#files = new AdapterFiles({
      folder,
      modelPath,
      limits: { maxRank, maxBytes },
      prepare,
      onError: (err) => log.warn({ model, err }, "the file of an adapter that is not used any more was not removed"),
    });
  }

  /** Prepares those of the settings, before the model's first place is up. Throws what is wrong with one, naming it. */
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

  /** The server has started: from now on an adapter that cannot be loaded again takes down itself alone. */
  serverStarted(): void {
    this.#isStarting = false;
  }

  /**
   * The model's place is up and takes no jobs yet: loads every resident generation into it, under its old id. Rejects where
   * the place ends, or is being ended, meanwhile; and with the first that it does not take while the server starts.
   */
  attach(model: Ref<ModelProtocol>, isEnding: () => boolean): Promise<void> {
    return this.#engine.inTurn(async () => {
      this.#engine.restarted(model);
      for (const generation of this.#table.generations()) {
        // Those that are let go while others are loaded need not come.
        if (!this.#table.has(generation)) continue;
        await this.#engine.load(generation).catch((error: unknown) => {
          if (this.#isStarting || isEnding() || endsOfPlaces.includes(toErrorRecord(error).code)) {
            throw this.#naming(this.#table.aliasesOf(generation)[0] ?? generation.prepared.generation, error);
          }
          this.#lose(generation, error);
        });
      }
    });
  }

  /** For a request: what the selector stands for now. Throws invalid_value with the param adapter. */
  lease(selector: AdapterSelector): AdapterLease {
    const generation = this.#table.lease(selector);
    let isReleased = false;
    return {
      adapter: { id: generation.id, generation: generation.prepared.generation },
      release: () => {
        assert(!isReleased, `a lease on adapter ${generation.id} was released twice`);
        isReleased = true;
        const freed = this.#table.release(generation);
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

  /** See LoraAdapters; the model must be loaded. What can be refused before anything is read is. */
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

  /** See LoraAdapters. The model need not be loaded. */
  async unload({ alias, expectedGeneration }: UnloadAdapterRequest): Promise<LoadedAdapter> {
    checkExpectedGeneration(expectedGeneration);
    const { was, freed } = this.#table.remove(checkedAlias(alias), expectedGeneration);
    if (freed !== null) this.#engine.free(freed);
    this.#log(was, {}, "adapter unloaded");
    return was;
  }

  /** The server shuts down: ends what is being prepared, lets nothing more in, and removes the files. */
  async close(): Promise<void> {
    await this.#files.close(this.#table.generations());
  }

  /** Prepares what is to come and puts it in place; where that fails, nothing has changed. `done` is said of one that is new. */
  async #bringIn(wanted: Wanted, source: string, root: string | null, done: string): Promise<LoadedAdapter> {
    const startedMs = performance.now();
    const content = await this.#files.prepare(source, root);
    try {
      const { loaded, replaced } = await this.#engine.inTurn(() => this.#putInPlace(wanted, content));
      const ms = Math.round(performance.now() - startedMs);
      if (replaced === null) this.#log(loaded, { ms }, done);
      else this.#log(loaded, { replaced, ms }, "adapter replaced");
      return loaded;
    } finally {
      // It is left over where that failed, and where the same content was in memory already.
      if (!this.#table.generations().some(({ home }) => home === content.home)) await this.#files.remove(content);
    }
  }

  /** In a turn of the engine. What may stand against it is looked at anew, because time has passed. */
  async #putInPlace(wanted: Wanted, content: Content): Promise<Pointed> {
    // Its room may be what those have that nobody needs any more; what is looked at below must not change while they go.
    while (this.#engine.isBehind) await this.#engine.freeUnneeded();
    this.#assertOpen();
    this.#table.checkRoom(wanted, content.prepared);
    const resident = this.#table.find(content.prepared.generation);
    if (resident !== null) return this.#point(wanted, resident);
    const generation = { id: this.#nextId++, ...content };
    await this.#engine.load(generation).catch((error: unknown) => {
      throw notTaken(error);
    });
    try {
      this.#assertOpen();
      return this.#point(wanted, generation);
    } catch (error) {
      await this.#engine.unload(generation);
      throw error;
    }
  }

  #point(wanted: Wanted, generation: AdapterVersion): Pointed {
    const pointed = this.#table.point(wanted, generation, Math.floor(Date.now() / 1000));
    if (pointed.freed !== null) this.#engine.free(pointed.freed);
    return pointed;
  }

  /** The model lives on without it: those who want it are told that there is no such adapter. */
  #lose(generation: AdapterVersion, err: unknown): void {
    const { modelId: model, log } = this.#options;
    const aliases = this.#table.lose(generation);
    const fields = { model, aliases, generation: generation.prepared.generation, err };
    log.error(fields, "the model was loaded without an adapter that it had before; load the adapter anew");
    void this.#files.remove(generation);
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
