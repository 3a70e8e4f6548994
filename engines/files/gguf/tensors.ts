// Tensor table: type, shape and position of each tensor in the model's file, or in its files if the model is split.
// Used by engines that read the weights themselves. This module reads no weights, but checks that all positions are
// valid.
import { ServerError } from "../../../runtime/errors.ts";
import type { GgufValue } from "./cursor.ts";
import { damagedFile, describeValue, quote } from "./invalid-file.ts";
import { type GgufHead, maxEntries, readHead, type TensorEntry } from "./reader.ts";
import { shardPaths } from "./shards.ts";

export interface TensorInfo {
  readonly name: string;
  /** GGUF type number. */
  readonly type: number;
  /** Dimensions, innermost (columns) first. */
  readonly shape: readonly number[];
  /** Index of the tensor's file in TensorTable.files. */
  readonly file: number;
  /** Byte position from the start of that file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface TensorTable {
  readonly files: readonly string[];
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Key/value pairs of the file. Of the tokenizer's pairs, only that of the mask token is included. */
  readonly fields: ReadonlyMap<string, GgufValue>;
}

interface TensorType {
  readonly name: string;
  readonly blockLength: number;
  readonly blockBytes: number;
}

/** Number types of GGUF: type number, name, values of a block, bytes of a block. */
const types = [
  [0, "F32", 1, 4],
  [1, "F16", 1, 2],
  [2, "Q4_0", 32, 18],
  [3, "Q4_1", 32, 20],
  [6, "Q5_0", 32, 22],
  [7, "Q5_1", 32, 24],
  [8, "Q8_0", 32, 34],
  [9, "Q8_1", 32, 36],
  [10, "Q2_K", 256, 84],
  [11, "Q3_K", 256, 110],
  [12, "Q4_K", 256, 144],
  [13, "Q5_K", 256, 176],
  [14, "Q6_K", 256, 210],
  [15, "Q8_K", 256, 292],
  [16, "IQ2_XXS", 256, 66],
  [17, "IQ2_XS", 256, 74],
  [18, "IQ3_XXS", 256, 98],
  [19, "IQ1_S", 256, 50],
  [20, "IQ4_NL", 32, 18],
  [21, "IQ3_S", 256, 110],
  [22, "IQ2_S", 256, 82],
  [23, "IQ4_XS", 256, 136],
  [24, "I8", 1, 1],
  [25, "I16", 1, 2],
  [26, "I32", 1, 4],
  [27, "I64", 1, 8],
  [28, "F64", 1, 8],
  [29, "IQ1_M", 256, 56],
  [30, "BF16", 1, 2],
  [34, "TQ1_0", 256, 54],
  [35, "TQ2_0", 256, 66],
  [39, "MXFP4", 32, 17],
  [40, "NVFP4", 64, 36],
  [41, "Q1_0", 128, 18],
  [42, "Q2_0", 64, 18],
] as const;

export type TensorTypeName = (typeof types)[number][1];

/**
 * Block length in values and block size in bytes of each number type, by GGUF type number. Type numbers that are not
 * listed were withdrawn from the format or never used.
 */
export const tensorTypes: ReadonlyMap<number, TensorType> = new Map(
  types.map(([type, name, blockLength, blockBytes]) => [type, { name, blockLength, blockBytes }]),
);

const numbers = new Map(types.map(([type, name]) => [name, type as number]));

/** Returns the GGUF type number of a number type. */
export function tensorType(name: TensorTypeName): number {
  return numbers.get(name) as number;
}

/** Types without blocks that matrices of a model may have before they are quantized. */
export const floatTypes: ReadonlySet<number> = new Set([tensorType("F32"), tensorType("F16"), tensorType("BF16")]);

/**
 * Matrices that are never quantized, because they are small and errors in them have a large effect. Routers choose experts; positions and
 * token types are added to every token; convolutions have rows of a few values.
 */
const neverQuantized = new RegExp(
  `(?:${[
    ...["_norm", "^rope_freqs", "^rope_factors_\\w+", "^position_embd", "^token_types", "\\.ffn_gate_inp(?:_shexp)?"],
    ...[
      "\\.ssm_conv1d\\w*",
      "\\.shortconv\\.conv",
      "\\.conv_dw",
      "\\.attn_rel_b",
      "(?:^|\\.)altup_\\w+",
      "\\.laurel_\\w+",
    ],
    ...["^per_layer_model_proj", "\\.time_mix_(?!key|value|receptance|gate|output)\\w+", "^cls(?:\\.output)?"],
  ].join("|")})\\.weight$`,
);

/** Whether a tensor is a matrix that may be quantized. `name`: its name in GGUF. */
export function isQuantizable({ name, shape }: Pick<TensorEntry, "name" | "shape">): boolean {
  return shape.length > 1 && name.endsWith(".weight") && !neverQuantized.test(name);
}

/** Key of the mask token of a masked language model, the only key of the tokenizer in TensorTable.fields. */
export const maskTokenKey = "tokenizer.ggml.mask_token_id";
const defaultAlignment = 32;
const maxAlignment = 1024 * 1024;

/**
 * Reads the header of a model file. If the model is split, `path` may be any shard, and the headers of all shards are read.
 * Weights are never read. Throws ServerError `model_file_invalid`.
 */
export async function readTensorTable(path: string): Promise<TensorTable> {
  const named = await readHead(path, isKept);
  const files = splitFiles(path, named);
  const tensors = new Map<string, TensorInfo>();
  let fields = named.pairs;
  for (const [file, filePath] of files.entries()) {
    const head = filePath === path ? named : await readShard(filePath, files.length);
    if (file === 0) fields = head.pairs;
    if (files.length > 1) checkShard(filePath, head, file, files.length);
    for (const tensor of placeTensors(filePath, head, file)) {
      if (tensors.has(tensor.name)) throw damagedFile(filePath, `it has the ${nameOf(tensor)} twice`);
      tensors.set(tensor.name, tensor);
    }
    if (tensors.size > maxEntries) throw damagedFile(filePath, `with it the model has over ${maxEntries} tensors`);
  }
  if (files.length > 1) checkTotal(path, fields, tensors.size);
  return { files, tensors, fields };
}

function isKept(key: string): boolean {
  return !key.startsWith("tokenizer.") || key === maskTokenKey;
}

function nameOf(tensor: { readonly name: string }): string {
  return `tensor ${quote(tensor.name)}`;
}

/**
 * Returns the files of the model. The header states whether the model is split. The file name is not sufficient, because
 * an unsplit file may be named like a shard.
 */
function splitFiles(path: string, { pairs }: GgufHead): readonly string[] {
  const count = pairs.get("split.count") ?? 1;
  if (count === 0 || count === 1) return [path];
  const files = shardPaths(path);
  if (files.length === count) return files;
  throw new ServerError(
    "model_file_invalid",
    `${path} is one file of a split model (its split.count is ${describeValue(count)}), so its name should end like ` +
      '"-00001-of-00003.gguf", with that count; give all its files the names they were published with',
  );
}

async function readShard(path: string, fileCount: number): Promise<GgufHead> {
  try {
    return await readHead(path, isKept);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw new ServerError(error.code, `the model is split over ${fileCount} files, all needed: ${error.message}`, {
      cause: error,
    });
  }
}

function checkShard(path: string, { pairs }: GgufHead, file: number, fileCount: number): void {
  const count = pairs.get("split.count");
  const index = pairs.get("split.no");
  if (count === fileCount && index === file) return;
  throw new ServerError(
    "model_file_invalid",
    `${path} should say split.no ${file} and split.count ${fileCount}, but split.no is ${describeValue(index)} and ` +
      `split.count ${describeValue(count)}; fetch all files of the model again, from one place`,
  );
}

function checkTotal(path: string, fields: ReadonlyMap<string, GgufValue>, found: number): void {
  const total = fields.get("split.tensors.count");
  if (total === undefined || total === found) return;
  throw damagedFile(path, `split.tensors.count is ${describeValue(total)}, but its files list ${found} tensors`);
}

/**
 * Returns the positions of one file's tensors, in the order listed. `file` is the file's index among the model's files.
 */
export function placeTensors(path: string, head: GgufHead, file: number): TensorInfo[] {
  const alignment = readAlignment(path, head.pairs);
  const dataStart = Math.ceil(head.headBytes / alignment) * alignment;
  const tensors = head.tensors.map((entry): TensorInfo => {
    const { name, type, shape } = entry;
    if (entry.offset % alignment !== 0) {
      throw damagedFile(path, `its ${nameOf(entry)} lies at ${entry.offset}, which is not a multiple of ${alignment}`);
    }
    const bytes = tensorBytes(path, entry);
    const offset = dataStart + entry.offset;
    if (offset + bytes > head.fileBytes) {
      throw new ServerError(
        "model_file_invalid",
        `${path} ends after ${head.fileBytes} bytes, but its ${nameOf(entry)} takes bytes ${offset} to ` +
          `${offset + bytes}; it is an incomplete copy, fetch it again`,
      );
    }
    return { name, type, shape, file, offset, bytes };
  });
  checkApart(path, tensors);
  return tensors;
}

function readAlignment(path: string, pairs: ReadonlyMap<string, GgufValue>): number {
  const alignment = pairs.get("general.alignment") ?? defaultAlignment;
  if (typeof alignment === "number" && alignment >= 1 && alignment <= maxAlignment) {
    if (Number.isInteger(alignment) && (alignment & (alignment - 1)) === 0) return alignment;
  }
  throw damagedFile(
    path,
    `general.alignment is ${describeValue(alignment)}; expected a power of two up to ${maxAlignment}`,
  );
}

function tensorBytes(path: string, entry: TensorEntry): number {
  const { shape, type } = entry;
  const found = tensorTypes.get(type);
  if (!found) throw damagedFile(path, `its ${nameOf(entry)} has type ${type}, which is not a GGUF number type`);
  let values = 1;
  for (const length of shape) {
    values *= length;
    if (length === 0 || !Number.isSafeInteger(length) || !Number.isSafeInteger(values)) {
      throw damagedFile(path, `its ${nameOf(entry)} is ${shape.join(" x ")} values; expected 1 to 2^53`);
    }
  }
  const { name, blockLength, blockBytes } = found;
  const columns = shape[0] ?? 1;
  if (columns % blockLength !== 0) {
    throw damagedFile(
      path,
      `its ${nameOf(entry)} has rows of ${columns} values; ${name} takes multiples of ${blockLength}`,
    );
  }
  return (values / blockLength) * blockBytes;
}

function checkApart(path: string, tensors: readonly TensorInfo[]): void {
  const inOrder = tensors.toSorted((a, b) => a.offset - b.offset);
  for (const [i, tensor] of inOrder.entries()) {
    const before = inOrder[i - 1];
    if (before && before.offset + before.bytes > tensor.offset) {
      throw damagedFile(path, `its ${nameOf(before)} and ${nameOf(tensor)} overlap at byte ${tensor.offset}`);
    }
  }
}
