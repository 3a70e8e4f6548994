// Generator of a model of any size: llama architecture, Q8_0 matrices with random weights, written to a file in pieces. For
// measurements that depend only on the size.
import { randomFillSync } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { buildGgufHeader, GGMLQuantizationType, type GGUFTypedMetadata, GGUFValueType } from "@huggingface/gguf";
import { byteSpellings } from "../../engines/text/tokenizer/byte-alphabet.ts";

export interface RandomShape {
  readonly layers: number;
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocabSize: number;
}

interface Tensor {
  readonly name: string;
  /** Number of columns, then of rows; a vector has only columns. */
  readonly shape: readonly number[];
}

const blockLength = 32;
const blockBytes = 34;
/** Scale of the blocks, as F16. Random bytes times this scale have about the spread of trained weights. */
const blockScale = 0x0c00;
/** Bytes written at once: a multiple of the block size and of the alignment. */
const writeBytes = blockBytes * 32 * 1024;
const alignment = 32;

/** Writes the model and returns the number of bytes of its tensors. */
export async function writeRandomModel(path: string, shape: RandomShape): Promise<number> {
  const tensors = tensorsOf(shape);
  const infos = Buffer.concat(describe(tensors));
  const header = await buildGgufHeader(new Blob([infos]), metadataOf(shape, tensors.length), {
    littleEndian: true,
    tensorInfoByteRange: [0, infos.length],
  });
  const file = await open(path, "w");
  try {
    await file.write(Buffer.from(await header.arrayBuffer()));
    const blocks = randomBlocks();
    for (const tensor of tensors) await writeTensor(file, tensor, blocks);
  } finally {
    await file.close();
  }
  return tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0);
}

function tensorsOf({ layers, width, feedForward, heads, kvHeads, vocabSize }: RandomShape): Tensor[] {
  const kvWidth = (width / heads) * kvHeads;
  const tensor = (name: string, ...shape: number[]): Tensor => ({ name: `${name}.weight`, shape });
  const blocks = Array.from({ length: layers }, (_, layer) => [
    tensor(`blk.${layer}.attn_norm`, width),
    tensor(`blk.${layer}.attn_q`, width, width),
    tensor(`blk.${layer}.attn_k`, width, kvWidth),
    tensor(`blk.${layer}.attn_v`, width, kvWidth),
    tensor(`blk.${layer}.attn_output`, width, width),
    tensor(`blk.${layer}.ffn_norm`, width),
    tensor(`blk.${layer}.ffn_gate`, width, feedForward),
    tensor(`blk.${layer}.ffn_up`, width, feedForward),
    tensor(`blk.${layer}.ffn_down`, feedForward, width),
  ]);
  const ends = [tensor("output_norm", width), tensor("output", width, vocabSize)];
  return [tensor("token_embd", width, vocabSize), ...blocks.flat(), ...ends];
}

/** Bytes of a tensor. Norms are F32, matrices Q8_0. */
function bytesOf({ shape: [columns = 0, rows] }: Tensor): number {
  return rows === undefined ? columns * 4 : (columns / blockLength) * blockBytes * rows;
}

function describe(tensors: readonly Tensor[]): Buffer[] {
  let offset = 0;
  return tensors.map((tensor) => {
    const { name, shape } = tensor;
    const info = Buffer.alloc(8 + name.length + 4 + 8 * shape.length + 4 + 8);
    let at = info.writeBigUInt64LE(BigInt(name.length), 0);
    at += info.write(name, at, "latin1");
    at = info.writeUInt32LE(shape.length, at);
    for (const length of shape) at = info.writeBigUInt64LE(BigInt(length), at);
    at = info.writeUInt32LE(shape.length === 1 ? GGMLQuantizationType.F32 : GGMLQuantizationType.Q8_0, at);
    info.writeBigUInt64LE(BigInt(offset), at);
    offset += bytesOf(tensor);
    if (offset % alignment !== 0) throw new Error(`${name} ends at ${offset}, between two alignments of ${alignment}`);
    return info;
  });
}

async function writeTensor(file: FileHandle, tensor: Tensor, blocks: Buffer): Promise<void> {
  const { shape } = tensor;
  const bytes = bytesOf(tensor);
  if (shape.length === 1) {
    const ones = new Float32Array(bytes / 4).fill(1);
    await file.write(Buffer.from(ones.buffer));
    return;
  }
  for (let left = bytes; left > 0; left -= blocks.length) await file.write(blocks, 0, Math.min(left, blocks.length));
}

function randomBlocks(): Buffer {
  const blocks = randomFillSync(Buffer.alloc(writeBytes));
  for (let at = 0; at < blocks.length; at += blockBytes) blocks.writeUInt16LE(blockScale, at);
  return blocks;
}

function metadataOf(shape: RandomShape, tensorCount: number): GGUFTypedMetadata {
  const u32 = (value: number) => ({ value, type: GGUFValueType.UINT32 });
  const text = (value: string) => ({ value, type: GGUFValueType.STRING });
  const texts = (value: string[]) => ({ value, type: GGUFValueType.ARRAY, subType: GGUFValueType.STRING });
  const tokens = ["<|endoftext|>", ...byteSpellings];
  while (tokens.length < shape.vocabSize) tokens.push(`filler${tokens.length}`);
  const fields = {
    version: { value: 3, type: GGUFValueType.UINT32 },
    tensor_count: { value: BigInt(tensorCount), type: GGUFValueType.UINT64 },
    kv_count: { value: 0n, type: GGUFValueType.UINT64 },
    "general.architecture": text("llama"),
    "general.name": text("random"),
    "llama.context_length": u32(2048),
    "llama.embedding_length": u32(shape.width),
    "llama.block_count": u32(shape.layers),
    "llama.feed_forward_length": u32(shape.feedForward),
    "llama.attention.head_count": u32(shape.heads),
    "llama.attention.head_count_kv": u32(shape.kvHeads),
    "llama.attention.layer_norm_rms_epsilon": { value: 1e-5, type: GGUFValueType.FLOAT32 },
    "llama.rope.dimension_count": u32(shape.width / shape.heads),
    "llama.vocab_size": u32(shape.vocabSize),
    "tokenizer.ggml.model": text("gpt2"),
    "tokenizer.ggml.pre": text("smollm"),
    "tokenizer.ggml.tokens": texts(tokens),
    "tokenizer.ggml.merges": texts(["e r"]),
    "tokenizer.ggml.eos_token_id": u32(0),
  };
  return fields as unknown as GGUFTypedMetadata;
}
