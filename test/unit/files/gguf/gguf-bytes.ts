// GGUF byte builder for the tests of this folder: builds valid and invalid GGUF files.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";

/** Runs `use` with a folder that is deleted afterwards. */
export async function inTemporaryFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "gguf-test-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Runs `use` with the path of a file that contains `bytes`. */
export function withFile<T>(bytes: Buffer, use: (path: string) => Promise<T>): Promise<T> {
  return inTemporaryFolder(async (folder) => {
    const path = join(folder, "model.gguf");
    await writeFile(path, bytes);
    return use(path);
  });
}

export function invalidFile(words: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ServerError && error.code === "model_file_invalid" && words.test(error.message);
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

export function text(value: string): Buffer {
  return Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
}

const u32Type = 4;
const stringType = 8;

export interface TensorBytes {
  readonly name: string;
  readonly type: number;
  readonly shape: readonly (number | bigint)[];
  readonly offset: number | bigint;
}

export interface GgufBytes {
  readonly version?: number;
  /** Metadata pairs. A number is written as u32. A Buffer contains the type and the value, and is written unchanged. */
  readonly pairs?: readonly (readonly [key: string, value: number | string | Buffer])[];
  readonly tensors?: readonly TensorBytes[];
  readonly alignment?: number;
  /** Number of bytes of weights after the header and its padding. */
  readonly dataBytes?: number;
  /** Count written to the header, if it differs from the true one. */
  readonly tensorCount?: number | bigint;
  readonly pairCount?: number | bigint;
}

export function ggufBytes(parts: GgufBytes): Buffer {
  const { version = 3, pairs = [], tensors = [], alignment = 32, dataBytes = 0 } = parts;
  const head = Buffer.concat([
    Buffer.from("GGUF"),
    u32(version),
    u64(parts.tensorCount ?? tensors.length),
    u64(parts.pairCount ?? pairs.length),
    ...pairs.flatMap(([key, value]) => [text(key), valueBytes(value)]),
    ...tensors.flatMap(({ name, type, shape, offset }) => [
      text(name),
      u32(shape.length),
      ...shape.map(u64),
      u32(type),
      u64(offset),
    ]),
  ]);
  return Buffer.concat([head, Buffer.alloc(((alignment - (head.length % alignment)) % alignment) + dataBytes)]);
}

function valueBytes(value: number | string | Buffer): Buffer {
  if (typeof value === "number") return Buffer.concat([u32(u32Type), u32(value)]);
  if (typeof value === "string") return Buffer.concat([u32(stringType), text(value)]);
  return value;
}
