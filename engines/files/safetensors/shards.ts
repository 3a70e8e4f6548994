// Safetensors of a model: one file, or shards with an index. Every tensor name is in exactly one file, and the index
// agrees with the headers of the files. Weights are never read here.
import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { accessFailure } from "../access-failure.ts";
import { quote } from "../gguf/invalid-file.ts";
import { maxEntries } from "../gguf/reader.ts";
import { type ReadableFile, readSafetensorsHead, type SafetensorsEntry, sizeProblem } from "./head.ts";

export interface ShardTensor extends SafetensorsEntry {
  /** Index of the tensor's file in ModelTensors.files. */
  readonly file: number;
}

export interface ModelTensors {
  /** Paths of the files. */
  readonly files: readonly string[];
  readonly tensors: ReadonlyMap<string, ShardTensor>;
}

export const indexFile = "model.safetensors.index.json";
/** Maximum length of a header in bytes: a tensor takes about 150 bytes, and a model has up to about 100,000 tensors. */
const maxHeadBytes = 64 * 1024 * 1024;
const maxFiles = 1024;
const shardPattern = /-(\d{5})-of-(\d{5})\.safetensors$/;

/**
 * Reads the headers of a folder's safetensors. `index`: content of the folder's index file; null if it has none. Throws
 * `model_file_invalid` naming the file.
 */
export async function readModelTensors(
  folder: string,
  index: Readonly<Record<string, unknown>> | null,
): Promise<ModelTensors> {
  const weightMap = index === null ? null : readWeightMap(join(folder, indexFile), index);
  const names = weightMap === null ? await findFiles(folder) : [...new Set(weightMap.values())].sort();
  const tensors = new Map<string, ShardTensor>();
  const files = names.map((name) => join(folder, name));
  for (const [file, path] of files.entries()) {
    for (const entry of await readShard(path, files.length)) {
      const before = tensors.get(entry.name);
      if (before) throw doubled(entry.name, path, files[before.file] as string);
      tensors.set(entry.name, { ...entry, file });
    }
    if (tensors.size > maxEntries) throw damaged(path, `with it the model has over ${maxEntries} tensors`);
  }
  if (weightMap !== null) checkIndex(join(folder, indexFile), weightMap, { files, names, tensors });
  return { files, tensors };
}

function readWeightMap(path: string, { weight_map: map }: Readonly<Record<string, unknown>>): Map<string, string> {
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw damaged(path, "its weight_map is not an object of tensor names and file names");
  }
  const weightMap = new Map<string, string>();
  for (const [name, file] of Object.entries(map)) {
    // A name with a separator could lead out of the folder.
    if (typeof file !== "string" || !/^[^/\\]+\.safetensors$/.test(file)) {
      throw damaged(path, `its weight_map has no file name for ${quote(name)}`);
    }
    weightMap.set(name, file);
  }
  const files = new Set(weightMap.values()).size;
  if (files === 0 || files > maxFiles)
    throw damaged(path, `its weight_map names ${files} files; expected 1 to ${maxFiles}`);
  return weightMap;
}

async function findFiles(folder: string): Promise<string[]> {
  const all = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    throw new ServerError("model_file_invalid", `${folder} cannot be read (${error.code}); name a folder with a model`);
  });
  if (all.includes("model.safetensors")) return ["model.safetensors"];
  const found = all.filter((name) => name.startsWith("model") && name.endsWith(".safetensors")).sort();
  const [, , total] = shardPattern.exec(found[0] ?? "") ?? [];
  const expected = total === undefined ? 1 : Number(total);
  if (found.length === expected && found.length <= maxFiles) return found;
  const others = all.filter((name) => /\.(?:safetensors|bin|pt|pth|gguf)$/.test(name)).slice(0, 5);
  throw new ServerError(
    "model_file_invalid",
    `${folder} has ${found.length} of the ${expected} files of a model in safetensors` +
      (others.length > 0 ? ` (it has ${others.map(quote).join(", ")})` : "") +
      "; expected model.safetensors, or its shards with an index: fetch all files of the model",
  );
}

/** Reads the header of one of `fileCount` files. Throws the errors of accessFailure. */
export async function readShard(path: string, fileCount: number): Promise<SafetensorsEntry[]> {
  const file = await openShard(path, fileCount);
  try {
    const source: ReadableFile = {
      name: path,
      size: (await file.stat()).size,
      async read(into, position) {
        for (let done = 0; done < into.length; ) {
          const { bytesRead } = await file.read(into, done, into.length - done, position + done);
          if (bytesRead === 0) throw damaged(path, "it became shorter while it was read");
          done += bytesRead;
        }
      },
    };
    const entries = await readSafetensorsHead(source, {
      maxBytes: maxHeadBytes,
      damaged: (problem) => damaged(path, problem),
    });
    for (const entry of entries) {
      const problem = sizeProblem(entry);
      if (problem !== null) throw damaged(path, problem);
    }
    return entries;
  } finally {
    await file.close();
  }
}

async function openShard(path: string, fileCount: number) {
  try {
    const file = await open(path, "r");
    if ((await file.stat()).isFile()) return file;
    await file.close();
    throw new ServerError("model_file_invalid", `${path} is not a file; expected a file in safetensors`);
  } catch (error) {
    if (error instanceof ServerError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "ENOENT" ? "is missing" : `cannot be opened (${code})`;
    throw accessFailure(error, `${path} ${reason}`, `the model has ${fileCount} files, all needed: fetch it again`);
  }
}

interface Found extends ModelTensors {
  readonly names: readonly string[];
}

function checkIndex(path: string, weightMap: ReadonlyMap<string, string>, { names, tensors }: Found): void {
  for (const [name, file] of weightMap) {
    const found = tensors.get(name);
    if (found === undefined || names[found.file] !== file) {
      const place = found === undefined ? "no file has it" : `it is in ${names[found.file]}`;
      throw damaged(path, `it says that ${quote(name)} is in ${quote(file)}, but ${place}`);
    }
  }
  for (const { name, file } of tensors.values()) {
    if (!weightMap.has(name)) throw damaged(path, `it lacks ${quote(name)}, which is in ${names[file]}`);
  }
}

function doubled(name: string, path: string, other: string): ServerError {
  return damaged(path, `its tensor ${quote(name)} is also in ${other}`);
}

function damaged(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} is damaged or incomplete: ${problem}; fetch the model again`);
}
