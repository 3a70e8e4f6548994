// Adapter source: resolves the source of a LoRA adapter, or of an X-LoRA, to a local folder or file: a path, or a name
// on the hub, which is fetched into the hub's cache. Called by cli/ before the server starts; the content is checked
// when the adapter is prepared.
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
  /** Revision of a hub source that names none; default `main`. */
  readonly revision?: string;
  /** Folder or file of one adapter, in a source with several. */
  readonly member?: string | null;
  /** Size limit of each fetched file in bytes; default: none. */
  readonly maxFileBytes?: number;
}

export interface AdapterPlace {
  /** Absolute path of a PEFT folder or of a GGUF file. */
  readonly path: string;
  /** Revision of a hub source; null for a path. */
  readonly revision: string | null;
}

/** Kind of source: adapter or X-LoRA. */
interface Kind {
  /** Chooses its files among those of a repository; the first is the result, or lies in the resulting folder. */
  choose(paths: readonly string[], choice: AdapterChoice): readonly string[];
  /** For error messages. */
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
 * `source` is a path, or `owner/name[@revision][:folder or file]` on the hub; an existing path wins. Throws
 * `invalid_lora_adapter` if there is no such adapter, and the errors of a fetch from the hub.
 */
export function resolveAdapter(source: string, options: AdapterFetchOptions = {}): Promise<AdapterPlace> {
  return resolvePlace(source, adapterKind, options);
}

/** As resolveAdapter, for an X-LoRA, whose adapters are fetched with it. The result is a folder. */
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

/** null if it cannot be a name on the hub. */
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
