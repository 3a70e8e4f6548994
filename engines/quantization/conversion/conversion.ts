// Conversion: writes tensors of a model into a file (GGUF, or a shard of UQFF), each in its planned type. Worker threads convert chunks of
// rows and write them at their positions, so no tensor is in memory as a whole. An interrupted conversion resumes where it stopped.
import { createHash } from "node:crypto";
import { constants, type FileHandle, mkdir, open, realpath, rename, stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { ggufHead, type HeadTensor } from "../../files/gguf/writer.ts";
import { isCopied, rowsOf } from "./chunk-writer.ts";
import { FinishedChunks } from "./finished-chunks.ts";
import type { Chunk, TargetTensor } from "./messages.ts";
import type { ModelSource, SourceTensor } from "./model-source.ts";
import { runWorkers, type WorkersOptions } from "./workers.ts";

export interface ConversionPlan {
  readonly source: ModelSource;
  /** GGUF type of each tensor, by name. */
  readonly types: ReadonlyMap<string, number>;
  /** Importance of the columns of tensors, by name (messages.ts). */
  readonly importance: ReadonlyMap<string, Float32Array>;
  /** Value of general.file_type; null = the file does not name one. */
  readonly fileType: number | null;
}

/** All bytes of a file except those of its tensors. */
export interface FileHead {
  /** Bytes of the file before the tensors to convert. */
  readonly bytes: Buffer;
  /** Byte position of each tensor from the start of the file, in the order given. */
  readonly offsets: readonly number[];
  readonly fileBytes: number;
  /** Bytes at the end of the file, after the tensors to convert. */
  readonly tail?: Buffer;
}

/** Tensors to write, and the function that assigns their positions. */
export interface FilePlan {
  readonly files: readonly string[];
  readonly tensors: readonly SourceTensor[];
  readonly types: ConversionPlan["types"];
  readonly importance: ConversionPlan["importance"];
  readonly head: (tensors: readonly HeadTensor[]) => FileHead;
}

/** A planned conversion. */
export interface Conversion {
  /** Digest in hex of source, types, importance and the version of this code. Conversions with equal keys write equal files. */
  readonly key: string;
  /** Paths of the source's files. */
  readonly files: readonly string[];
  readonly tensors: readonly TargetTensor[];
  readonly head: FileHead;
}

export interface ConversionOptions extends WorkersOptions {
  readonly target: string;
  /** Called with the bytes written so far and the size of the file. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/** Number of values that a worker converts at once, unless one row has more. */
const chunkValues = 2 ** 19;
/** Number of digits of the key in the name of an unfinished file, so that two conversions never write to the same file. */
const keyDigits = 8;
/** Version of the conversion. It changes when the same source and types result in other bytes. */
const version = 2;

/** Assigns a position in the GGUF file to each tensor. Reads no weights. Throws `model_file_invalid` if a file of the source is missing. */
export async function planConversion({ source, types, importance, fileType }: ConversionPlan): Promise<Conversion> {
  const pairs = new Map(source.pairs);
  if (fileType !== null) pairs.set("general.file_type", { type: "u32", value: fileType });
  const { files, tensors } = source;
  return await planFile({ files, tensors, types, importance, head: (entries) => ggufHead(pairs, entries) });
}

/** Like planConversion, for a file of any format. */
export async function planFile({ files, tensors, types, importance, head: place }: FilePlan): Promise<Conversion> {
  const entries = tensors.map((tensor) => ({ ...tensor, type: types.get(tensor.name) ?? tensor.type }));
  const head = place(entries);
  const targets = tensors.map(
    (tensor, i): TargetTensor => ({
      ...tensor,
      targetType: entries[i]?.type as number,
      offset: head.offsets[i] as number,
      importance: shared(importance.get(tensor.name)),
    }),
  );
  return { key: await keyOf({ files, tensors }, head, importance), files, tensors: targets, head };
}

/** Copies the importance to memory that the worker threads share. */
function shared(weights: Float32Array | undefined): Float32Array | null {
  if (weights === undefined) return null;
  const copy = new Float32Array(new SharedArrayBuffer(weights.byteLength));
  copy.set(weights);
  return copy;
}

/**
 * Writes the file. It gets the name `target` only when it is complete. Throws `model_file_invalid` for a damaged source, `unsupported` for
 * a type that cannot be converted, `config_invalid` if the disk has no room, `cancelled` if the signal is aborted.
 */
export async function convert(conversion: Conversion, options: ConversionOptions): Promise<void> {
  const { files, tensors, head, key } = conversion;
  const { target, onProgress } = options;
  const partial = `${target}.${key.slice(0, keyDigits)}.partial`;
  await mkdir(dirname(target), { recursive: true });
  const chunks = chunksOf(tensors);
  const finished = await FinishedChunks.open(partial, key, chunks.length, head.fileBytes);
  const file = finished.isContinued ? await open(partial, "r+") : await createFile(partial, head);
  try {
    const waiting = chunks.filter(({ index }) => !finished.has(index));
    const totalRows = rowsIn(chunks);
    let doneRows = totalRows - rowsIn(waiting);
    await runWorkers({ files, target: partial, tensors }, waiting, options, async (index) => {
      doneRows += chunks[index]?.rows ?? 0;
      onProgress?.(Math.floor((doneRows / totalRows) * head.fileBytes), head.fileBytes);
      await finished.add(index, () => file.datasync());
    });
    await file.sync();
  } catch (error) {
    // Saves the progress for the next start. A failure to save is ignored, because the original error is more useful.
    await finished.save(() => file.datasync()).catch(() => {});
    throw error;
  } finally {
    await file.close();
  }
  await rename(partial, target);
  await finished.remove();
}

function chunksOf(tensors: readonly TargetTensor[]): Chunk[] {
  const chunks: Chunk[] = [];
  for (const [index, tensor] of tensors.entries()) {
    const rows = rowsOf(tensor);
    const step = isCopied(tensor) ? rows : Math.max(1, Math.floor(chunkValues / (tensor.shape[0] ?? 1)));
    for (let firstRow = 0; firstRow < rows; firstRow += step) {
      chunks.push({ index: chunks.length, tensor: index, firstRow, rows: Math.min(step, rows - firstRow) });
    }
  }
  return chunks;
}

function rowsIn(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, { rows }) => sum + rows, 0);
}

async function keyOf(
  { files, tensors }: Pick<ModelSource, "files" | "tensors">,
  { bytes, tail }: FileHead,
  importance: ReadonlyMap<string, Float32Array>,
): Promise<string> {
  const hash = createHash("sha256").update(`${version}\n${chunkValues}\n`);
  for (const path of files) {
    // A file in the hub's cache is a link. Its target is the same for all revisions with the same content.
    const [real, { size, mtimeMs }] = await Promise.all([realpath(path), stat(path)]);
    hash.update(`${real}\n${size}\n${mtimeMs}\n`);
  }
  for (const { values } of tensors) hash.update(JSON.stringify(values));
  for (const [name, { buffer, byteOffset, byteLength }] of importance) {
    hash.update(name).update(new Uint8Array(buffer, byteOffset, byteLength));
  }
  if (tail !== undefined) hash.update(tail);
  return hash.update(bytes).digest("hex");
}

async function createFile(path: string, { bytes, fileBytes, tail }: FileHead): Promise<FileHandle> {
  await checkRoom(path, fileBytes);
  // The file is not emptied first: if another process happens to write it, too, both write the same bytes at the same positions.
  const file = await open(path, constants.O_RDWR | constants.O_CREAT);
  await file.write(bytes, 0, bytes.length, 0);
  await file.truncate(fileBytes);
  if (tail !== undefined) await file.write(tail, 0, tail.length, fileBytes - tail.length);
  return file;
}

async function checkRoom(path: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(path));
  const free = bavail * bsize;
  if (free > bytes) return;
  const gib = (count: number) => `${(count / 2 ** 30).toFixed(1)} GiB`;
  throw new ServerError(
    "config_invalid",
    `the converted model needs ${gib(bytes)} in ${dirname(path)}, which has ${gib(free)} free; make room there, or set ` +
      "XDG_CACHE_HOME to a folder on another disk",
  );
}
