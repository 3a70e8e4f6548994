// Owns how numbers and strings are written to a GGUF file, and where the data of a tensor may begin (the GGUF specification of ggml).

/** Tensors begin at multiples of so many bytes, where a file does not say otherwise. */
const alignment = 32;

/** `offset`, or the next one where a tensor may begin. */
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

/** Its bytes in UTF-8, behind their number. */
export function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}
