// Importance writer: converts sums over the inputs of matrices to an importance matrix, in memory or as a file that importance-file.ts
// reads: GGUF, which llama.cpp also reads, or .cimatrix.
import { mkdir, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { ggufHead } from "../../files/gguf/writer.ts";
import { cimatrixBytes } from "./cimatrix.ts";
import type { Importance } from "./importance-file.ts";
import { byModule } from "./module-names.ts";

/** Sums over the inputs of one matrix, or of a stack of matrices (experts), one matrix after another. */
interface Sums {
  /** Name of the matrix in the model file. */
  readonly name: string;
  /** Sum of squares of each column. */
  readonly squares: Float32Array;
  /** Number of input rows of each matrix. */
  readonly rows: Float32Array;
}

/** Origin of the sums, stated in the file. */
interface Origin {
  readonly dataset: string;
  /** Length of a chunk in tokens, and number of chunks. */
  readonly chunkTokens: number;
  readonly chunks: number;
}

const f32 = 0;

/** Returns the mean squares of the columns. Columns without data have the value 1, so that they all have the same weight. */
export function importanceOf(sums: readonly Sums[]): Importance {
  return new Map(
    sums.map(({ name, squares, rows }) => {
      const columns = squares.length / rows.length;
      const means = squares.map((sum, i) => {
        const count = rows[Math.floor(i / columns)] as number;
        return count > 0 ? sum / count : 1;
      });
      return [name, means];
    }),
  );
}

/**
 * Writes the mean squares to a .cimatrix file; experts without input rows have zeros, as mistral.rs writes them. Matrices without
 * input rows are left out. Throws config_invalid for a matrix that has no name in the format.
 */
export async function writeCimatrix(path: string, all: readonly Sums[], architecture: string): Promise<void> {
  const means = all.filter(isSeen).map(({ name, squares, rows }): [string, Float32Array] => {
    const columns = squares.length / rows.length;
    return [name, squares.map((sum, i) => sum / Math.max(1, rows[Math.floor(i / columns)] as number))];
  });
  await replaceFile(path, cimatrixBytes(byModule(new Map(means), architecture)));
}

/** Writes the sums to a GGUF file. Matrices without input rows are left out. */
export async function writeImportance(path: string, all: readonly Sums[], origin: Origin): Promise<void> {
  const sums = all.filter(isSeen);
  const entries = sums.flatMap(({ name, squares, rows }) => [
    { name: `${name}.in_sum2`, type: f32, shape: [squares.length / rows.length, rows.length], values: squares },
    { name: `${name}.counts`, type: f32, shape: [1, rows.length], values: rows },
  ]);
  const pairs = new Map([
    ["general.type", { type: "string", value: "imatrix" }],
    ["imatrix.datasets", { type: "array", of: "string", value: [origin.dataset] }],
    ["imatrix.chunk_count", { type: "u32", value: origin.chunks }],
    ["imatrix.chunk_size", { type: "u32", value: origin.chunkTokens }],
  ] as const);
  const { bytes, offsets, fileBytes } = ggufHead(pairs, entries);
  const file = Buffer.alloc(fileBytes);
  bytes.copy(file);
  for (const [i, { values }] of entries.entries()) {
    file.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), offsets[i] as number);
  }
  await replaceFile(path, file);
}

function isSeen({ rows }: Sums): boolean {
  return rows.some((count) => count > 0);
}

async function replaceFile(path: string, content: Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}.partial`;
  await writeFile(partial, content);
  await rename(partial, path);
}
