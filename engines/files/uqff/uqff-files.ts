// UQFF files: the quantized weights of a model as mistral.rs writes them, versions 1.0 to 1.2. A shard is a safetensors file. Each
// quantized layer has a tensor for its weights and small tensors that describe them. The tensors that are not quantized are in
// residual.safetensors, next to the shards. Weights are not read here.
import { type FileHandle, open, readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { quote } from "../gguf/invalid-file.ts";
import { maxEntries } from "../gguf/reader.ts";
import { type ModelTensors, readShard, type ShardTensor } from "../safetensors/shards.ts";
import { formatSuffix, type ReadLayer, readLayer, type UqffLayer } from "./layers.ts";
import { residualFile, shardSets } from "./names.ts";

export interface UqffFiles extends ModelTensors {
  /** Version of the UQFF format, such as 1.2.0. */
  readonly version: string;
  readonly layers: readonly UqffLayer[];
  /** Tensors that belong to no layer: biases, and all of residual.safetensors. */
  readonly others: readonly ShardTensor[];
}

/** Newest version that can be read. Files are written in this version. */
export const uqffVersion = { major: 1, minor: 2, patch: 0 } as const;
export const versionNames = ["uqff.version.major", "uqff.version.minor", "uqff.version.patch"] as const;

/** Maximum size of a tensor that describes a layer: scalars, and the dimensions of a matrix. */
const maxSmallBytes = 64;

/**
 * Reads the headers of a model's shards and of residual.safetensors in the same folder, and the small tensors that describe the layers.
 * `path`: the first shard. Throws `model_file_invalid`, which names the file and the tensor, and `unsupported` for layers that cannot be
 * read.
 */
export async function readUqff(path: string): Promise<UqffFiles> {
  const folder = dirname(path);
  const files = [...(await shardsOf(path)).map((name) => join(folder, name)), join(folder, residualFile)];
  const tensors = await readTensors(files);
  checkNumbers(path, tensors);
  const handles = new Map<number, FileHandle>();
  const read = async ({ name, file, offset, bytes }: ShardTensor): Promise<Buffer> => {
    if (bytes > maxSmallBytes) throw damaged(files[file] as string, `its tensor ${quote(name)} has ${bytes} bytes`);
    const handle = handles.get(file) ?? (await open(files[file] as string, "r"));
    handles.set(file, handle);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, offset);
    if (bytesRead < bytes) throw damaged(files[file] as string, "it became shorter while it was read");
    return buffer;
  };
  try {
    const version = await readVersion(path, tensors, read);
    const layers = await readLayers({ files, tensors, read });
    const used = new Set<string>(versionNames);
    for (const { parts } of layers) for (const { name } of parts.values()) used.add(name);
    return { files, tensors, version, layers, others: [...tensors.values()].filter(({ name }) => !used.has(name)) };
  } finally {
    await Promise.all([...handles.values()].map((handle) => handle.close()));
  }
}

/** Returns the names of all shards of the model to which the shard at `path` belongs. */
async function shardsOf(path: string): Promise<readonly string[]> {
  const name = basename(path);
  const names = await readdir(dirname(path)).catch((error: NodeJS.ErrnoException) => {
    throw new ServerError(
      "model_file_invalid",
      `${dirname(path)} cannot be read (${error.code}); name a folder with a model`,
    );
  });
  const set = shardSets(names).find(({ files }) => files.includes(name));
  if (set === undefined)
    throw new ServerError("model_file_invalid", `${path} is missing; fetch all files of the model`);
  const [missing] = set.missing;
  if (missing === undefined) return set.files;
  throw new ServerError(
    "model_file_invalid",
    `${path} has ${set.files.length} shards; ${missing} is missing: fetch it, too`,
  );
}

async function readTensors(files: readonly string[]): Promise<Map<string, ShardTensor>> {
  const tensors = new Map<string, ShardTensor>();
  for (const [file, path] of files.entries()) {
    for (const entry of await readShard(path, files.length)) {
      const before = tensors.get(entry.name);
      const isVersion = versionNames.some((name) => name === entry.name);
      if (before && !isVersion) throw damaged(path, `its tensor ${quote(entry.name)} is also in ${files[before.file]}`);
      if (!before) tensors.set(entry.name, { ...entry, file });
    }
    if (tensors.size > maxEntries) throw damaged(path, `with it the model has over ${maxEntries} tensors`);
  }
  return tensors;
}

/** Throws for a file of a version before 1.0, whose layers have numbers in place of names. */
function checkNumbers(path: string, tensors: ReadonlyMap<string, ShardTensor>): void {
  const names = [...tensors.values()].filter(({ file }) => file === 0).map(({ name }) => name);
  if (names.length === 0 || names.some((name) => !/^\d+$/.test(name))) return;
  throw unsupported(path, "has a version of UQFF before 1.0, whose layers have no names");
}

async function readVersion(
  path: string,
  tensors: ReadonlyMap<string, ShardTensor>,
  read: (tensor: ShardTensor) => Promise<Buffer>,
): Promise<string> {
  const parts: number[] = [];
  for (const name of versionNames) {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw damaged(path, `its tensor ${quote(name)} is missing`);
    if (tensor.type !== "U32" || tensor.bytes !== 4)
      throw damaged(path, `its tensor ${quote(name)} is no whole number (U32)`);
    parts.push((await read(tensor)).readUInt32LE());
  }
  const [major = 0, minor = 0] = parts;
  if (major === uqffVersion.major && minor <= uqffVersion.minor) return parts.join(".");
  throw unsupported(
    path,
    `has version ${parts.join(".")} of UQFF; ${uqffVersion.major}.0 to ${uqffVersion.major}.${uqffVersion.minor} are read`,
  );
}

async function readLayers(context: ReadLayer): Promise<UqffLayer[]> {
  const keys = [...context.tensors.keys()].filter((name) => name.endsWith(formatSuffix));
  const layers: UqffLayer[] = [];
  for (const name of keys) layers.push(await readLayer(name.slice(0, -formatSuffix.length), context));
  return layers;
}

function unsupported(path: string, problem: string): ServerError {
  const advice = "make the file again with `troupe quantize`, or use the model's safetensors or a GGUF file of it";
  return new ServerError("unsupported", `${path} ${problem}; ${advice}`, { param: "from_uqff" });
}

function damaged(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} is damaged or incomplete: ${problem}; fetch the model again`);
}
