// GGUF writer: encodes numbers, strings and the parts of a header, and aligns tensor data (GGUF specification of ggml).
import type { TensorEntry } from "./reader.ts";

/** "GGUF" as a little-endian number. */
const magic = 0x46554747;
const version = 3;
/** Default alignment of tensor data, in bytes. */
const alignment = 32;

/** Returns the start of a file with `tensors` tensors and `pairs` key/value pairs. */
export function preamble(tensors: number, pairs: number): Buffer {
  return Buffer.concat([u32(magic), u32(version), u64(tensors), u64(pairs)]);
}

export function tensorEntry({ name, shape, type, offset }: TensorEntry): Buffer {
  return Buffer.concat([text(name), u32(shape.length), ...shape.map(u64), u32(type), u64(offset)]);
}

/** Rounds `offset` up to the alignment of tensor data. */
export function aligned(offset: number): number {
  return Math.ceil(offset / alignment) * alignment;
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

export function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

/** Encodes a GGUF string: its length in bytes as u64, then UTF-8. */
export function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}
