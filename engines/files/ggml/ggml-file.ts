// GGML file: a Llama model in the last format before GGUF (magic ggjt, version 3), as llama.cpp wrote it until August 2023. The file has
// sizes, the vocabulary with scores, and then the tensors, each a header and its data at a multiple of 32 bytes. File contents are not
// trusted: every length is checked against the file before it is used.
import { open } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { damagedFile, quote, truncatedFile } from "../gguf/invalid-file.ts";
import { tensorByteLength } from "../gguf/writer.ts";
import { FileCursor } from "./file-cursor.ts";

export interface GgmlFile {
  readonly sizes: GgmlSizes;
  readonly tokens: readonly { readonly bytes: Buffer; readonly score: number }[];
  readonly tensors: ReadonlyMap<string, GgmlTensor>;
}

export interface GgmlSizes {
  readonly vocabulary: number;
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly rotated: number;
}

export interface GgmlTensor {
  /** GGUF type number; the types have kept their numbers and layouts. */
  readonly type: number;
  /** Dimensions, columns first. */
  readonly shape: readonly number[];
  /** Byte position in the file. */
  readonly offset: number;
}

const magic = 0x67676a74; // "ggjt" as a little-endian number
const version = 3;
const alignment = 32;
const maxTokens = 2 ** 20;
const maxTokenBytes = 4096;
const maxWidth = 2 ** 17;
const maxLayers = 1000;
const maxNameBytes = 256;
const maxTensors = 16 * maxLayers;
/** GGUF type numbers that can be read: floats, block types of 32 values, and K quants in blocks of 256 values. */
const knownTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14]);

/** Reads everything but the weights. Throws `model_file_invalid`, or `unsupported` for an earlier version. */
export async function readGgml(path: string): Promise<GgmlFile> {
  const file = await open(path);
  try {
    const cursor = new FileCursor(file, (await file.stat()).size, path);
    await checkVersion(cursor);
    const sizes = await readSizes(cursor);
    const tokens = [];
    for (let token = 0; token < sizes.vocabulary; token++) {
      const bytes = await cursor.bytes(await count(cursor, `the length of token ${token}`, 0, maxTokenBytes));
      tokens.push({ bytes, score: (await cursor.bytes(4)).readFloatLE() });
    }
    return { sizes, tokens, tensors: await readTensors(cursor) };
  } finally {
    await file.close();
  }
}

async function checkVersion(cursor: FileCursor): Promise<void> {
  const found = await cursor.u32();
  const number = found === magic ? await cursor.u32() : 0;
  if (number === version) return;
  const name = found === magic ? `GGML (ggjt) version ${number}` : "GGML of a version before ggjt";
  throw new ServerError(
    "unsupported",
    `${cursor.path} is ${name}; version ${version} can be read: fetch the model in GGUF or in ggjt version ${version}`,
    { param: "format" },
  );
}

async function readSizes(cursor: FileCursor): Promise<GgmlSizes> {
  const vocabulary = await count(cursor, "the size of the vocabulary", 1, maxTokens);
  const width = await count(cursor, "the width", 1, maxWidth);
  await cursor.u32(); // Factor of the feed-forward length; unused, because the tensors' shapes have the length.
  const heads = await count(cursor, "the number of heads", 1, width);
  const layers = await count(cursor, "the number of layers", 1, maxLayers);
  const rotated = await count(cursor, "the number of rotated values", 1, width);
  await cursor.u32(); // Type of most tensors; unused, because each tensor states its own type.
  if (width % heads !== 0) throw damagedFile(cursor.path, `its width ${width} is no multiple of its ${heads} heads`);
  return { vocabulary, width, heads, layers, rotated };
}

async function readTensors(cursor: FileCursor): Promise<Map<string, GgmlTensor>> {
  const { path, fileBytes } = cursor;
  const tensors = new Map<string, GgmlTensor>();
  while (cursor.position < fileBytes) {
    const dimensions = await count(cursor, "the number of dimensions", 1, 2);
    const nameBytes = await count(cursor, "the length of a tensor's name", 1, maxNameBytes);
    const type = await cursor.u32();
    const shape: number[] = [];
    for (let i = 0; i < dimensions; i++) shape.push(await count(cursor, "a dimension", 1, 2 ** 31));
    const name = (await cursor.bytes(nameBytes)).toString("utf8");
    if (tensors.size >= maxTensors) throw damagedFile(path, `it has more than ${maxTensors} tensors`);
    if (tensors.has(name)) throw damagedFile(path, `it has the tensor ${quote(name)} twice`);
    if (!knownTypes.has(type)) throw damagedFile(path, `its tensor ${quote(name)} has the type ${type}`);
    cursor.position = Math.ceil(cursor.position / alignment) * alignment;
    tensors.set(name, { type, shape, offset: cursor.position });
    cursor.position += byteLength(path, name, type, shape);
    if (cursor.position > fileBytes) throw truncatedFile(path, fileBytes);
  }
  return tensors;
}

function byteLength(path: string, name: string, type: number, shape: readonly number[]): number {
  try {
    return tensorByteLength(type, shape);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw damagedFile(path, `its tensor ${quote(name)} has ${cause.message}`);
  }
}

async function count(cursor: FileCursor, what: string, least: number, most: number): Promise<number> {
  const value = await cursor.u32();
  if (value >= least && value <= most) return value;
  throw damagedFile(cursor.path, `${what} is ${value}; expected ${least} to ${most}`);
}
