// Fingerprint: a hash that identifies the content of model files, computed from a part of their bytes. The store
// needs it because the KV of one model is invalid for another model. It is computed after the model has been loaded,
// when most of these bytes are in the page cache.
import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { shardPaths } from "../../files/gguf/shards.ts";

/**
 * Number of bytes read at the start of each file. These bytes contain the metadata and the table of tensors, unless the
 * vocabulary is large.
 */
const headBytes = 4 * 2 ** 20;
/** Number of samples per file, at least one in every layer, because two models may differ in only one layer. */
const sampleCount = 128;
const sampleBytes = 16 * 1024;

/**
 * Returns the sha256, in hex, of the sizes of the model's files, their first bytes, and evenly
 * spaced samples of the remaining bytes.
 */
export async function modelFingerprint(path: string): Promise<string> {
  const hash = createHash("sha256");
  for (const shard of shardPaths(path)) {
    const file = await open(shard, "r");
    try {
      const { size } = await file.stat();
      hash.update(`${size};`);
      for (const part of await Promise.all(partsOf(size).map((part) => readPart(file, part)))) hash.update(part);
    } finally {
      await file.close();
    }
  }
  return hash.digest("hex");
}

interface Part {
  readonly start: number;
  readonly length: number;
}

function partsOf(size: number): Part[] {
  const head = { start: 0, length: Math.min(size, headBytes) };
  const rest = size - head.length;
  if (rest <= sampleCount * sampleBytes) return [head, { start: head.length, length: rest }];
  const gap = (rest - sampleBytes) / (sampleCount - 1);
  const samples = Array.from({ length: sampleCount }, (_, i) => ({
    start: head.length + Math.floor(i * gap),
    length: sampleBytes,
  }));
  return [head, ...samples];
}

async function readPart(file: FileHandle, { start, length }: Part): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  const { bytesRead } = await file.read(bytes, 0, length, start);
  return bytes.subarray(0, bytesRead);
}
