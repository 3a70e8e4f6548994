// GGUF header reader: reads magic, version, key/value pairs and the list of tensors, without interpreting them.
// metadata.ts interprets the pairs, and tensors.ts interprets the list. The header is the part of the file before the
// weights.
import { type FileHandle, open } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { accessFailure } from "../access-failure.ts";
import { Cursor, type GgufValue, maxHeadBytes, WindowTooSmall } from "./cursor.ts";
import { damagedFile, quote, truncatedFile } from "./invalid-file.ts";

export interface TensorEntry {
  readonly name: string;
  /** GGUF type number. */
  readonly type: number;
  /** Dimensions, innermost (columns) first. */
  readonly shape: readonly number[];
  /** Byte offset from the start of the weights. */
  readonly offset: number;
}

export interface GgufHead {
  readonly pairs: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly TensorEntry[];
  /** Size of the header in bytes; the weights begin at the next multiple of the file's alignment. */
  readonly headBytes: number;
  readonly fileBytes: number;
}

const magic = 0x46554747; // "GGUF" as a little-endian number
const firstWindowBytes = 2 * 1024 * 1024;
/** Factor by which the window (the bytes read from the start of the file) grows until it contains the whole header. */
const windowGrowth = 4;
/**
 * Maximum number of key/value pairs, and of tensors. No model has this many, but a damaged header may contain a larger
 * number.
 */
export const maxEntries = 65_536;
const leastPairBytes = 8 + 4 + 1;
const leastTensorBytes = 8 + 4 + 4 + 8;
const maxDimensions = 4;

/**
 * Reads a file's header. Keeps only the key/value pairs for which wanted(key) is true. Throws ServerError
 * `model_file_invalid`.
 */
export async function readHead(path: string, wanted: (key: string) => boolean): Promise<GgufHead> {
  const file = await openModelFile(path);
  try {
    return await readOpenHead(file, path, wanted);
  } finally {
    await file.close();
  }
}

/** Returns a number of bytes from the start of a file in which readHead() finds a header of this size. */
export function bytesToRead(headBytes: number): number {
  return Math.max(firstWindowBytes, windowGrowth * headBytes);
}

/** The bytes of a file's header, in memory that threads share. The header is parsed from these bytes without the file. */
export interface HeadBytes {
  readonly path: string;
  readonly bytes: SharedArrayBuffer;
  /** Size of the whole file. */
  readonly fileBytes: number;
}

/** Reads the bytes of a file's header. Throws the errors of accessFailure. */
export async function readHeadBytes(path: string): Promise<HeadBytes> {
  const file = await openModelFile(path);
  try {
    const { headBytes, fileBytes } = await readOpenHead(file, path, () => false);
    const bytes = new SharedArrayBuffer(headBytes);
    const { bytesRead } = await file.read(new Uint8Array(bytes), { position: 0 });
    if (bytesRead < headBytes) throw truncatedFile(path, bytesRead);
    return { path, bytes, fileBytes };
  } finally {
    await file.close();
  }
}

/** Like readHead, but the bytes of the header are already in memory. */
export function parseHeadBytes({ path, bytes, fileBytes }: HeadBytes, wanted: (key: string) => boolean): GgufHead {
  return parseHead(new Cursor(Buffer.from(bytes), fileBytes, path), wanted);
}

/** Reads the header of an open file and leaves the file open. `path` is the file's name in errors. */
export async function readOpenHead(
  file: FileHandle,
  path: string,
  wanted: (key: string) => boolean,
): Promise<GgufHead> {
  const { size } = await file.stat();
  for (let windowBytes = firstWindowBytes; ; windowBytes *= windowGrowth) {
    const window = Buffer.alloc(Math.min(size, windowBytes, maxHeadBytes));
    const { bytesRead } = await file.read(window, { position: 0 });
    // If fewer bytes were read than requested, another program has just truncated the file; its size is then the number
    // of bytes read.
    const fileBytes = bytesRead < window.length ? bytesRead : size;
    try {
      return parseHead(new Cursor(window.subarray(0, bytesRead), fileBytes, path), wanted);
    } catch (error) {
      if (!(error instanceof WindowTooSmall)) throw error;
    }
  }
}

async function openModelFile(path: string): Promise<FileHandle> {
  try {
    const file = await open(path, "r");
    if ((await file.stat()).isFile()) return file;
    await file.close();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "ENOENT" ? "there is no such file" : `it cannot be opened (${code})`;
    throw accessFailure(error, `expected a GGUF model at ${path}, but ${reason}`, "check the path");
  }
  throw new ServerError(
    "model_file_invalid",
    `expected a GGUF model at ${path}, but it is not a file; name the .gguf file`,
  );
}

function parseHead(cursor: Cursor, wanted: (key: string) => boolean): GgufHead {
  checkMagic(cursor);
  checkVersion(cursor);
  const tensorCount = readCount(cursor, leastTensorBytes, "tensors");
  const pairCount = readCount(cursor, leastPairBytes, "key/value pairs");
  const pairs = new Map<string, GgufValue>();
  for (let i = 0; i < pairCount; i++) {
    const key = cursor.string();
    const type = cursor.u32();
    if (pairs.has(key)) throw damagedFile(cursor.path, `it has the key ${quote(key)} twice`);
    if (wanted(key)) pairs.set(key, cursor.value(type));
    else cursor.skip(type);
  }
  const tensors: TensorEntry[] = [];
  for (let i = 0; i < tensorCount; i++) tensors.push(readTensorEntry(cursor));
  const { offset: headBytes, fileBytes, path } = cursor;
  // Only the start of each tensor is checked here, to detect a truncated file. tensors.ts also checks where each tensor
  // ends.
  if (tensors.some(({ offset }) => headBytes + offset >= fileBytes)) throw truncatedFile(path, fileBytes);
  return { pairs, tensors, headBytes, fileBytes };
}

function checkMagic(cursor: Cursor): void {
  const found = cursor.u32();
  if (found === magic) return;
  const letters = Buffer.alloc(4);
  letters.writeUInt32LE(found);
  throw new ServerError(
    "model_file_invalid",
    `expected a GGUF model at ${cursor.path}, which starts with "GGUF", but it starts with ` +
      `${JSON.stringify(letters.toString("latin1"))}; name a .gguf file`,
  );
}

function checkVersion(cursor: Cursor): void {
  const version = cursor.u32();
  if (version === 2 || version === 3) return;
  const isBigEndian = version !== 0 && version % 0x10000 === 0;
  throw new ServerError(
    "model_file_invalid",
    `${cursor.path} is ${isBigEndian ? "a big-endian GGUF file" : `GGUF version ${version}`}; versions 2 and 3 ` +
      "(little-endian) can be read: fetch the model in one of these",
  );
}

function readCount(cursor: Cursor, leastBytes: number, things: string): number {
  const count = cursor.count(leastBytes, things);
  if (count <= maxEntries) return count;
  throw damagedFile(cursor.path, `it claims ${count} ${things}; up to ${maxEntries} are read`);
}

function readTensorEntry(cursor: Cursor): TensorEntry {
  const name = cursor.string();
  const dimensions = cursor.u32();
  if (dimensions > maxDimensions) {
    throw damagedFile(
      cursor.path,
      `its tensor ${quote(name)} has ${dimensions} dimensions; up to ${maxDimensions} are possible`,
    );
  }
  const shape = Array.from({ length: dimensions }, () => cursor.u64());
  return { name, shape, type: cursor.u32(), offset: cursor.u64() };
}
