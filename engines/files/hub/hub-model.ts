// Hub model: resolves a model name on the hub to local files. It compares the hub's listing with the cache and fetches
// missing files. If the hub cannot be reached, or a newer copy cannot be fetched, the cached files are used and the user gets
// a notice. Called by resolve-model.ts, resolve-adapter.ts and default-model.ts.
import { mkdir } from "node:fs/promises";
import { posix } from "node:path";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { generationConfigFile } from "../model-sampling.ts";
import { isUqff } from "../uqff/names.ts";
import { describeFile, listRepo, type RemoteFile, type RepoListing } from "./api/hub-api.ts";
import {
  blobPath,
  cachedCommit,
  cachedSizes,
  linkSnapshot,
  lockFolder,
  repoFolder,
  sizeOf,
  snapshotPath,
  writeRef,
} from "./api/hub-cache.ts";
import { type HubContext, hurried } from "./api/hub-context.ts";
import { checkpointFiles, uqffFiles } from "./choice/checkpoint-choice.ts";
import { type Choice, chooseModel, hasGguf, preferredQuantisations } from "./choice/model-choice.ts";
import { hasUqff } from "./choice/uqff-choice.ts";
import { checkRoom, downloadBlob } from "./download/blob-download.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { type HubSource, isCommit } from "./hub-source.ts";

export interface HubFetch {
  readonly source: HubSource;
  /** Folder of the hub's cache. */
  readonly cache: string;
  /** null = requests to the hub are forbidden. */
  readonly context: HubContext | null;
  /** true: the caller has an alternative to the hub, so the hub gets only one attempt with short limits. */
  readonly isOptional?: boolean;
  /** Chooses the files of a repository, the main file first; default: the files of a model. Throws if no file fits. */
  readonly choose?: (
    source: HubSource,
    paths: readonly string[],
    sizes: ReadonlyMap<string, number | null>,
  ) => readonly string[];
  /** Format, and quantisations that are preferred to the default ones (fetch-options.ts). */
  readonly format?: FetchOptions["format"];
  readonly quantisations?: readonly string[] | undefined;
  readonly roomBytes?: number | undefined;
  readonly fromUqff?: FetchOptions["fromUqff"];
  /** Maximum size of each file in bytes; default: no limit. */
  readonly maxFileBytes?: number | undefined;
  readonly onProgress: FetchOptions["onProgress"];
  readonly onNotice: FetchOptions["onNotice"];
}

/** Codes of a fetch that failed because of the network or the disk. A cached copy can then be used. */
const unfetched: ReadonlySet<ErrorCode> = new Set(["model_source_unreachable", "config_invalid"]);

/** Fetches the chosen files if necessary. Returns the local path of the first file. */
export async function resolveHubFiles(request: HubFetch): Promise<string> {
  const { source, context, choose = modelChooser(request) } = request;
  const cached = await findCached(request);
  if (context === null) return cached ?? refuseOffline(request);
  // A file at a given commit never changes, so a cached file is used without a request to the hub.
  if (cached !== null && isCommit(source.revision) && source.wanted !== null) return cached;
  let listing: RepoListing;
  try {
    const isHurried = cached !== null || request.isOptional === true;
    listing = await listRepo(isHurried ? hurried(context) : context, source);
  } catch (error) {
    if (cached === null || !(error instanceof ServerError) || error.code === "cancelled") throw error;
    return useCached(cached, request, error);
  }
  const paths = choose(source, [...listing.files.keys()], listing.files);
  const folder = repoFolder(request.cache, source.repo);
  try {
    await fetchFiles(request, context, listing, paths);
    await writeRef(folder, source.revision, listing.commit);
  } catch (cause) {
    const error = explainUnwritable(folder, cause);
    if (cached !== null && error instanceof ServerError && unfetched.has(error.code))
      return useCached(cached, request, error);
    throw error;
  }
  return snapshotPath(folder, listing.commit, paths[0] ?? "");
}

/** Returns the path of the cached copy, after a notice that says why the hub's is not used. */
function useCached(cached: string, { source, onNotice }: HubFetch, { message }: ServerError): string {
  onNotice?.(`"${source.repo}" is used as the cache has it: ${message}`);
  return cached;
}

/**
 * Returns the path of the first chosen file in the cache, without network access; null if the files are not all cached.
 */
export async function findCached(
  request: Pick<HubFetch, "source" | "cache" | "choose" | "format" | "quantisations" | "roomBytes" | "fromUqff">,
): Promise<string | null> {
  const { source, cache, choose = modelChooser(request) } = request;
  const folder = repoFolder(cache, source.repo);
  const commit = await cachedCommit(folder, source.revision);
  if (commit === null) return null;
  try {
    const sizes = await cachedSizes(folder, commit);
    const [first = ""] = choose(source, [...sizes.keys()], sizes);
    return snapshotPath(folder, commit, first);
  } catch {
    // A missing file or shard means that the model is not cached.
    return null;
  }
}

function modelChooser({
  format,
  quantisations = [],
  roomBytes,
  fromUqff = [],
}: Pick<HubFetch, "format" | "quantisations" | "roomBytes" | "fromUqff">): NonNullable<HubFetch["choose"]> {
  const preferred = [...quantisations, ...preferredQuantisations];
  return (source, paths, sizes) => {
    const room = roomBytes === undefined ? undefined : { bytes: roomBytes, sizes };
    return chooseModelFiles(source, paths, { preferred, room, isPlain: format === "plain", fromUqff });
  };
}

/**
 * Returns the files of a model: weights in UQFF if `fromUqff` names them; else a GGUF model with the generation_config.json of its folder;
 * else the files of a checkpoint; else weights in UQFF.
 */
function chooseModelFiles(
  source: HubSource,
  paths: readonly string[],
  {
    preferred,
    room,
    isPlain,
    fromUqff,
  }: Pick<Choice, "preferred" | "room"> & { readonly isPlain: boolean; readonly fromUqff: readonly string[] },
): readonly string[] {
  const named = source.wanted !== null && isUqff(source.wanted) ? [source.wanted, ...fromUqff] : fromUqff;
  if (named.length > 0) return uqffFiles(paths, { place: placeOf(source), wanted: named, preferred });
  const isGguf = source.wanted !== null || (hasGguf(paths) && !isPlain);
  const checkpoint = isGguf ? null : checkpointFiles(paths);
  if (checkpoint !== null) return checkpoint;
  if (!isGguf && hasUqff(paths)) return uqffFiles(paths, { place: placeOf(source), wanted: [], preferred });
  const choice = { place: placeOf(source), wanted: source.wanted, preferred, room };
  const chosen = chooseModel(paths, choice);
  const config = posix.join(posix.dirname(chosen[0] ?? ""), generationConfigFile);
  return paths.includes(config) ? [...chosen, config] : chosen;
}

/** Formats a repository's name for messages. */
export function placeOf({ repo, revision }: HubSource): string {
  return revision === "main" ? `"${repo}"` : `"${repo}" at ${revision}`;
}

async function fetchFiles(
  { source, cache, maxFileBytes, onProgress, onNotice }: HubFetch,
  context: HubContext,
  { commit, files }: RepoListing,
  paths: readonly string[],
): Promise<void> {
  const folder = repoFolder(cache, source.repo);
  const missing: { file: RemoteFile; blob: string }[] = [];
  const [main = "", ...others] = paths;
  // The main file is fetched last. The cache then has it only if it also has all other files, whatever interrupts the fetch.
  for (const path of [...others, main]) {
    const size = await sizeOf(snapshotPath(folder, commit, path));
    const listed = files.get(path) ?? null;
    if (size !== null && (listed === null || size === listed)) continue;
    const file = await describeFile(context, source, commit, path, listed);
    if (maxFileBytes !== undefined && file.sizeBytes > maxFileBytes) throw tooLarge(source, file, maxFileBytes);
    missing.push({ file, blob: blobPath(folder, file.etag) });
  }
  if (missing.length === 0) return;
  await mkdir(folder, { recursive: true });
  await checkRoom(folder, missing);
  const totalBytes = missing.reduce((sum, { file }) => sum + file.sizeBytes, 0);
  let beforeBytes = 0;
  for (const { file, blob } of missing) {
    const { wasThere } = await downloadBlob({
      context,
      file,
      blob,
      locks: lockFolder(cache, source.repo),
      onBytes: (doneBytes) => onProgress?.({ phase: "download", doneBytes: beforeBytes + doneBytes, totalBytes }),
      onVerify: onProgress,
      onNotice,
    });
    await linkSnapshot(blob, snapshotPath(folder, commit, file.path), { isShared: wasThere });
    beforeBytes += file.sizeBytes;
  }
}

/** Returns the error for an adapter file above the size limit. Model files have no limit. */
function tooLarge(source: HubSource, { path, sizeBytes }: RemoteFile, maxBytes: number): ServerError {
  return new ServerError(
    "lora_adapter_file_too_large",
    `"${path}" of ${placeOf(source)} has ${sizeBytes} bytes; up to ${maxBytes} are read: raise lora_max_bytes`,
  );
}

function explainUnwritable(folder: string, cause: unknown): unknown {
  const { code } = cause as NodeJS.ErrnoException;
  if (!["EACCES", "EPERM", "EROFS", "ENOTDIR", "EEXIST"].includes(String(code))) return cause;
  const message = `"${folder}" cannot be written (${code}); set HF_HUB_CACHE to a directory that can`;
  return new ServerError("config_invalid", message, { cause });
}

async function refuseOffline(request: HubFetch): Promise<never> {
  const { source, cache, choose = modelChooser(request) } = request;
  const folder = repoFolder(cache, source.repo);
  const commit = await cachedCommit(folder, source.revision);
  const reason = "the hub may not be asked (HF_HUB_OFFLINE)";
  if (commit === null) {
    throw absent(`${reason}, and the cache "${cache}" has no "${source.repo}" at revision "${source.revision}"`);
  }
  const problem = await cachedSizes(folder, commit)
    .then((sizes) => choose(source, [...sizes.keys()], sizes))
    .then(
      () => "it changed while it was read",
      (error: Error) => error.message,
    );
  throw absent(`${reason}, and in the cache "${cache}": ${problem}`);
}

function absent(message: string): ServerError {
  return new ServerError("model_source_unreachable", message, { param: "model_id" });
}
