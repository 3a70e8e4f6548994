// Excerpt of a model file: a smaller model file with the first layers and the first vocabulary tokens, weights
// unchanged. Its output is meaningless. The speed of the whole model is estimated as the excerpt's speed times the
// excerpt's fraction of the weights.
import { type FileHandle, open } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { Cursor } from "./cursor.ts";
import { aligned, preamble, tensorEntry, text, u32, u64 } from "./encode.ts";
import { damagedFile } from "./invalid-file.ts";
import { readHeadBytes } from "./reader.ts";
import { readTensorTable, type TensorInfo, type TensorTable } from "./tensors.ts";

export interface Excerpt {
  /** Size of the excerpt's weights divided by the size of the whole model's weights. */
  readonly share: number;
  /** Number of tokens in the excerpt's vocabulary. */
  readonly vocabSize: number;
}

const u32Type = 4;
const arrayType = 9;
/**
 * Minimum number of tokens in an excerpt's vocabulary. With fewer tokens, control and byte tokens at the start of the
 * vocabulary could be missing.
 */
const leastTokens = 1024;
/** Number of bytes that are copied at once. A tensor can be larger than Node.js reads at once (2 GiB) or memory holds. */
const pieceBytes = 16 * 2 ** 20;

/** Numbers of layers and vocabulary tokens in the model and in the excerpt. */
export interface ExcerptCut {
  readonly layers: number;
  readonly keptLayers: number;
  readonly tokens: number;
  readonly keptTokens: number;
}

interface Cut extends ExcerptCut {
  readonly architecture: string;
}

/** A tensor of the excerpt: the first `bytes` bytes of a tensor of the model. */
interface KeptTensor extends TensorInfo {
  readonly shape: readonly number[];
}

/**
 * Writes an excerpt of the model at `path` to `target`. The excerpt has as many of the first layers as fit into
 * `maxWeights` weights, but at least one layer, and the same fraction of the vocabulary. Throws `model_file_invalid`
 * for a damaged file, `unsupported` for a model without layers.
 */
export async function writeExcerpt(path: string, target: string, maxWeights: number): Promise<Excerpt> {
  const table = await readTensorTable(path);
  const cut = chooseCut(path, table, maxWeights);
  const tensors = keptTensors(table, cut);
  const [first = path] = table.files;
  const head = await readHeadBytes(first);
  const pairs = keptPairs(new Cursor(Buffer.from(head.bytes), head.fileBytes, first), cut);
  const file = await open(target, "w");
  try {
    await file.write(Buffer.concat([preamble(tensors.length, pairs.length), ...pairs, ...entries(tensors)]));
    await copyWeights(file, table.files, tensors);
  } finally {
    await file.close();
  }
  return { share: sumBytes(tensors) / sumBytes([...table.tensors.values()]), vocabSize: cut.keptTokens };
}

function chooseCut(path: string, { tensors, fields }: TensorTable, maxWeights: number): Cut {
  const architecture = String(fields.get("general.architecture"));
  const layers = Number(fields.get(`${architecture}.block_count`));
  const cut = excerptCut([...tensors.values()], layers, maxWeights);
  if (cut !== null) return { ...cut, architecture };
  throw new ServerError("unsupported", `${path} has no layers and token embeddings to take an excerpt of`);
}

/**
 * Returns how much of a model with `layers` layers an excerpt of at most `maxWeights` weights keeps; null if the model has no
 * layers or no token embeddings.
 */
export function excerptCut(
  tensors: readonly Pick<TensorInfo, "name" | "shape">[],
  layers: number,
  maxWeights: number,
): ExcerptCut | null {
  const tokens = tensors.find(({ name }) => name === "token_embd.weight")?.shape[1];
  if (!(layers >= 1) || tokens === undefined) return null;
  const layerWeights = new Float64Array(layers);
  let otherWeights = 0;
  for (const tensor of tensors) {
    const layer = layerOf(tensor);
    const weights = tensor.shape.reduce((product, length) => product * length, 1);
    if (layer === null) otherWeights += weights;
    else layerWeights[layer] = (layerWeights[layer] ?? 0) + weights;
  }
  let keptLayers = 0;
  let weights = 0;
  while (keptLayers < layers) {
    weights += (layerWeights[keptLayers] as number) + otherWeights / layers;
    if (keptLayers > 0 && weights > maxWeights) break;
    keptLayers++;
  }
  const keptTokens = Math.min(tokens, Math.max(leastTokens, Math.round((tokens * keptLayers) / layers)));
  return { layers, keptLayers, tokens, keptTokens };
}

/** Returns the layer of a tensor; null if the tensor belongs to no single layer. */
function layerOf({ name }: Pick<TensorInfo, "name">): number | null {
  const [, layer] = /^blk\.(\d+)\./.exec(name) ?? [];
  return layer === undefined ? null : Number(layer);
}

function keptTensors({ tensors }: TensorTable, cut: Cut): KeptTensor[] {
  return [...tensors.values()].flatMap((tensor) => {
    const shape = keptShape(tensor, cut);
    if (shape === null) return [];
    // The embedding is stored row by row, so the rows of the first tokens are the first bytes of the tensor.
    return [{ ...tensor, shape, bytes: (tensor.bytes / (tensor.shape.at(-1) ?? 1)) * (shape.at(-1) ?? 1) }];
  });
}

/** Returns the shape that a tensor has in the excerpt; null if the excerpt does not have the tensor. */
export function keptShape(
  tensor: Pick<TensorInfo, "name" | "shape">,
  { keptLayers, tokens, keptTokens }: ExcerptCut,
): readonly number[] | null {
  const { name, shape } = tensor;
  const layer = layerOf(tensor);
  if (layer !== null) return layer < keptLayers ? shape : null;
  const isByToken = /^(?:token_embd|output)\.(?:weight|bias)$/.test(name) && shape.at(-1) === tokens;
  return isByToken ? [...shape.slice(0, -1), keptTokens] : shape;
}

/** Returns the model's key/value pairs as bytes, with reduced counts of layers, tokens and DeepStack vectors. */
function keptPairs(cursor: Cursor, cut: Cut): Buffer[] {
  const { architecture, keptLayers, keptTokens } = cut;
  const counts = new Map([
    [`${architecture}.block_count`, keptLayers],
    [`${architecture}.vocab_size`, keptTokens],
    // DeepStack vectors. A model may have more of them than the excerpt has layers, and a speed trial has no images.
    [`${architecture}.n_deepstack_layers`, 0],
  ]);
  cursor.advance(4 + 4 + 8);
  const pairs: Buffer[] = [];
  for (let left = cursor.u64(); left > 0; left--) {
    const key = cursor.string();
    const type = cursor.u32();
    const count = counts.get(key);
    if (count !== undefined) {
      cursor.skip(type);
      pairs.push(Buffer.concat([text(key), u32(u32Type), u32(count)]));
    } else if (type === arrayType) pairs.push(Buffer.concat([text(key), u32(type), keptList(cursor, key, cut)]));
    else {
      const start = cursor.offset;
      cursor.skip(type);
      if (isKept(key)) pairs.push(Buffer.concat([text(key), u32(type), cursor.slice(start)]));
    }
  }
  return pairs;
}

/**
 * Returns whether the excerpt keeps a key. Keys of splits and alignment are dropped, because their values are wrong for
 * the excerpt. Chat templates are dropped, because a speed trial does not need them.
 */
export function isKept(key: string): boolean {
  return !key.startsWith("split.") && !key.startsWith("tokenizer.chat_template") && key !== "general.alignment";
}

function keptList(cursor: Cursor, key: string, { architecture, layers, keptLayers, tokens, keptTokens }: Cut): Buffer {
  const elementType = cursor.u32();
  const count = cursor.u64();
  let kept = count;
  if (key.startsWith(`${architecture}.`) && count === layers) kept = keptLayers;
  else if (key.startsWith("tokenizer.ggml.") && count === tokens) kept = keptTokens;
  // BPE merges are dropped, because they may name dropped tokens. Without merges, the excerpt cannot encode text, but a
  // speed trial encodes no text.
  else if (key === "tokenizer.ggml.merges") kept = 0;
  const start = cursor.offset;
  for (let i = 0; i < kept; i++) cursor.skip(elementType);
  const bytes = cursor.slice(start);
  for (let i = kept; i < count; i++) cursor.skip(elementType);
  return Buffer.concat([u32(elementType), u64(kept), bytes]);
}

function entries(tensors: readonly KeptTensor[]): Buffer[] {
  let offset = 0;
  return tensors.map((tensor) => {
    const entry = tensorEntry({ ...tensor, offset });
    offset = aligned(offset + tensor.bytes);
    return entry;
  });
}

/** Appends the weights to `target`. */
async function copyWeights(
  target: FileHandle,
  paths: readonly string[],
  tensors: readonly KeptTensor[],
): Promise<void> {
  const sources = await Promise.all(paths.map((path) => open(path, "r")));
  try {
    const piece = Buffer.allocUnsafe(pieceBytes);
    let at = aligned((await target.stat()).size);
    for (const { file, offset, bytes } of tensors) {
      for (let done = 0; done < bytes; ) {
        const length = Math.min(pieceBytes, bytes - done);
        const { bytesRead = 0 } = (await sources[file]?.read(piece, 0, length, offset + done)) ?? {};
        if (bytesRead === 0) throw damagedFile(paths[file] as string, `its weights end ${bytes - done} bytes early`);
        const { bytesWritten } = await target.write(piece, 0, bytesRead, at + done);
        done += bytesWritten;
      }
      at = aligned(at + bytes);
    }
    await target.truncate(at);
  } finally {
    await Promise.all(sources.map((source) => source.close()));
  }
}

function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}
