// Adapter source: resolves the source of a LoRA adapter or of an X-LoRA to a local folder or file. The source is a path
// or a name on the hub; hub files are fetched into the cache. The content is checked later, when the adapter is
// prepared. Called by cli/ before the server starts.
import { stat } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { createHubContext } from "./api/hub-context.ts";
import { hubCacheDirectory, isOffline } from "./api/hub-locations.ts";
import { type AdapterChoice, adapterConfigFile, chooseAdapter } from "./choice/adapter-choice.ts";
import { chooseMixture, mixtureClassifierFile } from "./choice/mixture-choice.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { placeOf, resolveHubFiles } from "./hub-model.ts";
import { type HubSource, isRevision, mainBranch, parseHubSource } from "./hub-source.ts";

export interface AdapterFetchOptions extends Omit<FetchOptions, "cacheDirectory" | "quantizedFile"> {
  /** Revision to use if a hub source names none; default `main`. */
  readonly revision?: string;
  /** Folder or file of the adapter, if the source contains several adapters. */
  readonly member?: string | null;
  /** Maximum size of each fetched file in bytes; default: no limit. */
  readonly maxFileBytes?: number;
}

export interface AdapterPlace {
  /** Absolute path of a PEFT folder or a GGUF file. */
  readonly path: string;
  /** Revision on the hub; null for a local path. */
  readonly revision: string | null;
}

/** How a source of one kind is resolved: of LoRA adapters, or of X-LoRAs. */
interface Kind {
  /**
   * Chooses the files to fetch from a repository. The result of resolving a source is the first chosen file, or the
   * folder of that file.
   */
  choose(paths: readonly string[], choice: AdapterChoice): readonly string[];
  /** Description of an adapter or of an X-LoRA, for error messages. */
  readonly expected: string;
}

const adapterKind: Kind = {
  choose: chooseAdapter,
  expected:
    "a LoRA adapter is a folder with adapter_config.json, a .gguf file, or owner/name[:FOLDER or FILE] on the hub",
};

const mixtureKind: Kind = {
  choose: chooseMixture,
  expected: "an X-LoRA is a folder with xlora_config.json, or owner/name[:FOLDER] on the hub",
};

/**
 * Resolves `source`: a path, or `owner/name[@revision][:folder or file]` on the hub. An existing path has precedence.
 * Throws `invalid_lora_adapter` if there is no such adapter, or the error of the failed fetch from the hub.
 */
export function resolveAdapter(source: string, options: AdapterFetchOptions = {}): Promise<AdapterPlace> {
  return resolvePlace(source, adapterKind, options);
}

/** Like resolveAdapter, for an X-LoRA. The adapters of the X-LoRA are fetched too. The result is a folder. */
export function resolveMixture(
  source: string,
  options: Omit<AdapterFetchOptions, "member"> = {},
): Promise<AdapterPlace> {
  return resolvePlace(source, mixtureKind, options);
}

async function resolvePlace(source: string, kind: Kind, options: AdapterFetchOptions): Promise<AdapterPlace> {
  const { member = null, revision = mainBranch, environment = process.env, onProgress, onNotice } = options;
  const path = resolve(source, member ?? "");
  if (await isThere(path)) return { path, revision: null };
  if (member !== null && (await isThere(resolve(source)))) throw invalid(`"${source}" has no "${member}" in it`);

  const wanted = hubSource(source, revision, member);
  if (wanted === null) throw invalid(`nothing is at "${resolve(source)}"; ${kind.expected}`);
  const first = await resolveHubFiles({
    source: wanted,
    cache: hubCacheDirectory(environment, options.hfCache),
    context: isOffline(environment) ? null : await createHubContext(options),
    choose: (chosen, paths) => kind.choose(paths, { place: placeOf(chosen), wanted: chosen.wanted }),
    maxFileBytes: options.maxFileBytes,
    onProgress,
    onNotice,
  });
  const isFolder = [adapterConfigFile, mixtureClassifierFile].includes(basename(first));
  return { path: isFolder ? dirname(first) : first, revision: wanted.revision };
}

/** Parses `source` as a hub name; returns null if it cannot be one. */
function hubSource(source: string, revision: string, member: string | null): HubSource | null {
  const named = parseHubSource(source);
  if (named === null) return null;
  const isPinned = named.revision !== mainBranch;
  if (isPinned && revision !== mainBranch && revision !== named.revision) {
    throw invalid(`"${source}" names the revision ${named.revision} and "${revision}" is set; give one of them`);
  }
  if (!isRevision(revision)) throw invalid(`revision expects a branch, a tag or a commit; got "${revision}"`);
  const { repo, wanted } = named;
  const within = wanted !== null && member !== null ? `${wanted}/${member}` : (wanted ?? member);
  return { repo, revision: isPinned ? named.revision : revision, wanted: within };
}

function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== "ENOENT" && error.code !== "ENOTDIR",
  );
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_lora_adapter", message);
}
