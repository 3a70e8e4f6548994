// GPU models stored in this browser, each as a folder of files (MLC format). The folder contains the file `marker` if its copy
// is complete; incomplete folders are deleted.
import { signal } from "@preact/signals";
import { withFreeLock } from "../base/lock.ts";
import { checkQuantization } from "./gpu.ts";
import {
  byName,
  type Copying,
  copyModel,
  folder,
  type KeptModel,
  type ModelContent,
  prepareRoom,
} from "./model-storage.ts";

/** File of a model that is to be copied. */
export interface SourceFile {
  readonly name: string;
  readonly bytes: number;
}

/** Source of a model: the list of its files, and a function that opens a file. */
export interface ModelSource {
  readonly files: readonly SourceFile[];
  open(name: string, signal: AbortSignal): Promise<ModelContent>;
}

/** Entry in the list of weights. `dataPath`: file name. */
interface Weights {
  readonly dataPath: string;
  readonly nbytes: number;
  readonly md5sum?: string;
}

interface PlannedFile extends SourceFile {
  /** MD5 checksum in hexadecimal digits; null if unknown. */
  readonly md5: string | null;
}

/** Stored models, sorted by name; null until they have been read. */
export const keptGpuModels = signal<readonly KeptModel[] | null>(null);
/** Copy in progress in this tab; null if there is none. */
export const copyingGpu = signal<Copying | null>(null);

const kept = "gpu-models";
const marker = "complete.json";
const configName = "mlc-chat-config.json";
const listNames = ["tensor-cache.json", "ndarray-cache.json"];
const tokenizerNames = ["tokenizer.json", "tokenizer.model"];
const maxJsonBytes = 64 * 2 ** 20;

function copyLock(name: string): string {
  return `troupe.copy.gpu.${name}`;
}

export async function readKeptGpuModels(): Promise<void> {
  const models = await folder(kept);
  const found: KeptModel[] = [];
  for await (const [name, handle] of models.entries()) {
    if (!(handle instanceof FileSystemDirectoryHandle)) continue;
    const bytes = await bytesOf(handle);
    if (bytes !== null) found.push({ name, bytes });
    // The copy is incomplete. If its lock is free, its page was closed.
    else await withFreeLock(copyLock(name), () => models.removeEntry(name, { recursive: true }).catch(() => {}));
  }
  keptGpuModels.value = byName(found);
}

/** Returns the size of a stored model in bytes; null if its copy is incomplete. */
async function bytesOf(model: FileSystemDirectoryHandle): Promise<number | null> {
  try {
    const text = await (await (await model.getFileHandle(marker)).getFile()).text();
    return (JSON.parse(text) as { readonly bytes: number }).bytes;
  } catch {
    return null;
  }
}

/** Returns the files of a stored model, by file name; null if there is no model with this name. */
export async function gpuModelFiles(name: string): Promise<ReadonlyMap<string, File> | null> {
  const models = await folder(kept);
  const model = await models.getDirectoryHandle(name).catch(() => null);
  if (model === null || (await bytesOf(model)) === null) return null;
  const files = new Map<string, File>();
  for await (const [file, handle] of model.entries()) {
    if (handle instanceof FileSystemFileHandle && file !== marker) files.set(file, await handle.getFile());
  }
  return files;
}

/**
 * Copies a model into the browser, with the progress in `copyingGpu`. Throws if a model with this name is already stored or
 * being copied, if the folder is not a model, if this machine's GPU cannot run it, if a file is damaged, or if there is not
 * enough storage.
 */
export async function keepGpuModel(name: string, source: ModelSource): Promise<void> {
  await copyModel(name, {
    lock: copyLock(name),
    copying: copyingGpu,
    isKept: async () => (await gpuModelFiles(name)) !== null,
    copy: async (stop) => {
      try {
        await copy(name, source, stop);
      } catch (error) {
        await (await folder(kept)).removeEntry(name, { recursive: true }).catch(() => {});
        throw error;
      }
    },
  });
  await readKeptGpuModels();
}

export async function dropGpuModel(name: string): Promise<void> {
  await (await folder(kept)).removeEntry(name, { recursive: true });
  await readKeptGpuModels();
}

async function copy(name: string, source: ModelSource, stop: AbortController): Promise<void> {
  const files = await planned(source, stop.signal);
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  await prepareRoom(bytes);
  const model = await (await folder(kept)).getDirectoryHandle(name, { create: true });
  let done = 0;
  for (const file of files) {
    const { stream } = await source.open(file.name, stop.signal);
    const check = await checked(file, (count) => {
      copyingGpu.value = { name, bytes, done: done + count, stop };
    });
    const handle = await model.getFileHandle(file.name, { create: true });
    await stream.pipeThrough(check, { signal: stop.signal }).pipeTo(await handle.createWritable(), stop);
    done += file.bytes;
  }
  const writable = await (await model.getFileHandle(marker, { create: true })).createWritable();
  await writable.write(JSON.stringify({ bytes }));
  await writable.close();
}

/** Returns the files in the source folder that the model needs. */
async function planned(source: ModelSource, signal: AbortSignal): Promise<readonly PlannedFile[]> {
  const config = await readJson<{ readonly tokenizer_files?: readonly string[]; readonly quantization?: string }>(
    source,
    one(source, [configName]),
    signal,
  );
  await checkQuantization(config.quantization ?? "");
  const asked = config.tokenizer_files ?? [];
  const tokenizer = one(
    source,
    tokenizerNames.filter((name) => asked.includes(name)),
  );
  const list = one(source, listNames);
  const { records = [] } = await readJson<{ readonly records?: readonly Weights[] }>(source, list, signal);
  const libraries = source.files.filter(({ name }) => name.endsWith(".wasm"));
  if (libraries.length !== 1) {
    throw new Error(
      `expected one .wasm file in the folder, the compiled library of the model; got ${libraries.length}`,
    );
  }
  const weights = records.map(({ dataPath, nbytes, md5sum }) => {
    const { name, bytes } = one(source, [dataPath]);
    if (bytes !== nbytes) throw new Error(`${name} has ${bytes} bytes; expected ${nbytes}: download the file again`);
    return { name, bytes, md5: md5sum ?? null };
  });
  if (weights.length === 0) throw new Error(`${list.name} names no weights`);
  const others = [one(source, [configName]), list, tokenizer, ...libraries];
  return [...others.map(({ name, bytes }) => ({ name, bytes, md5: null })), ...weights];
}

/** Returns the file with the first of `names` that exists in the folder. Throws if there is none. */
function one({ files }: ModelSource, names: readonly string[]): SourceFile {
  const found = names.map((name) => files.find((file) => file.name === name)).find((file) => file !== undefined);
  if (found !== undefined) return found;
  const which = names.length === 0 ? tokenizerNames.join(" or ") : names.join(" or ");
  throw new Error(`the folder is no model for the GPU: it has no ${which}`);
}

async function readJson<T>(source: ModelSource, { name, bytes }: SourceFile, signal: AbortSignal): Promise<T> {
  if (bytes > maxJsonBytes) throw new Error(`${name} has ${bytes} bytes; at most ${maxJsonBytes} are read`);
  try {
    return (await new Response((await source.open(name, signal)).stream).json()) as T;
  } catch (error) {
    if (error instanceof SyntaxError) throw new Error(`${name} is no JSON`);
    throw error;
  }
}

/** Returns a stream that passes a file on. It fails if the size or the checksum differs from the model's list. */
async function checked({ name, bytes, md5: expected }: PlannedFile, onBytes: (bytes: number) => void) {
  const sum = expected === null ? null : (await import("@noble/hashes/legacy.js")).md5.create();
  let count = 0;
  return new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(chunk, controller) {
      count += chunk.length;
      if (count > bytes) throw new Error(`${name} has more than ${bytes} bytes`);
      sum?.update(chunk);
      onBytes(count);
      controller.enqueue(chunk);
    },
    flush() {
      if (count !== bytes) throw new Error(`${name} ended after ${count} of ${bytes} bytes`);
      const found = sum === null ? null : hex(sum.digest());
      if (found === expected) return;
      throw new Error(`${name} is damaged (MD5 sum ${found}, expected ${expected}): download the file again`);
    },
  });
}

function hex(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
