// Prepared file writer: writes the GGUF file described in prepared-adapter.ts matrix by matrix, and computes its hash
// while writing. Only one pair of matrices is in memory at a time. An incomplete file never has the final name.
import { createHash, randomUUID } from "node:crypto";
import { type FileHandle, mkdir, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { aligned, preamble, tensorEntry, text, u32 } from "../gguf/encode.ts";
import { invalidAdapter } from "./adapter-problems.ts";
import { halfBits } from "./half-floats.ts";

/** Name and shape of an adapted matrix of the model, and its rank summed over all adapters. */
export interface PreparedShape {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  readonly rank: number;
}

/** Values of a pair: `a` is [rank][columns], `b` is [rows][rank]. All scales are included. */
export interface PairValues {
  readonly a: Float32Array;
  readonly b: Float32Array;
}

const halfType = 1;
const stringType = 8;
const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

export function preparedBytes(shapes: readonly PreparedShape[]): number {
  return shapes.reduce((sum, { rows, columns, rank }) => sum + 2 * rank * (rows + columns), 0);
}

/**
 * Writes `<sha256>.gguf` into `folder`. `read` must return the values of the given matrix. `finish` is called before the
 * file gets its final name.
 */
export async function writePrepared<Shape extends PreparedShape>(
  folder: string,
  architecture: string,
  shapes: readonly Shape[],
  steps: { readonly read: (shape: Shape) => Promise<PairValues>; readonly finish: () => Promise<void> },
): Promise<{ readonly generation: string; readonly path: string }> {
  await mkdir(folder, { recursive: true });
  const unfinished = join(folder, `${randomUUID()}.unfinished`);
  try {
    const file = await open(unfinished, "wx");
    const hash = createHash("sha256");
    const append = async (bytes: Uint8Array): Promise<void> => {
      hash.update(bytes);
      await writeAll(file, bytes);
    };
    try {
      await append(headOf(architecture, shapes));
      for (const shape of shapes) {
        const { a, b } = balanced(shape, await steps.read(shape));
        await append(a);
        await append(b);
      }
      await steps.finish();
    } finally {
      await file.close();
    }
    const generation = hash.digest("hex");
    const path = join(folder, `${generation}.gguf`);
    await rename(unfinished, path);
    return { generation, path };
  } finally {
    await rm(unfinished, { force: true });
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += (await file.write(bytes, done)).bytesWritten;
}

function headOf(architecture: string, shapes: readonly PreparedShape[]): Buffer {
  const fields = [
    ["general.architecture", architecture],
    ["general.type", "adapter"],
    ["adapter.type", "lora"],
  ] as const;
  const parts = [preamble(2 * shapes.length, fields.length)];
  for (const [key, value] of fields) parts.push(text(key), u32(stringType), text(value));
  let offset = 0;
  for (const { name, rows, columns, rank } of shapes) {
    for (const [suffix, width, height] of [["lora_a", columns, rank] as const, ["lora_b", rank, rows] as const]) {
      parts.push(tensorEntry({ name: `${name}.${suffix}`, shape: [width, height], type: halfType, offset }));
      offset += aligned(2 * width * height);
    }
  }
  const head = Buffer.concat(parts);
  return Buffer.concat([head], aligned(head.length));
}

/**
 * Converts the values to F16. For each rank index, the row of `a` is multiplied and the column of `b` divided by a
 * power of two, which leaves the product unchanged. After that, the row and the column have similar magnitudes, which
 * makes overflow and underflow in F16 least likely.
 */
function balanced({ name, columns, rank }: PreparedShape, { a, b }: PairValues): { a: Uint8Array; b: Uint8Array } {
  const largestA = new Float64Array(rank);
  const largestB = new Float64Array(rank);
  for (let i = 0; i < a.length; i++) keepLargest(largestA, Math.floor(i / columns), a[i] as number);
  for (let i = 0; i < b.length; i++) keepLargest(largestB, i % rank, b[i] as number);
  const shifts = largestA.map((value, k) => Math.trunc((exponentOf(largestB[k] as number) - exponentOf(value)) / 2));
  const factors = shifts.map((shift) => 2 ** shift);
  const halvesA = halvesOf(a);
  const halvesB = halvesOf(b);
  for (let i = 0; i < a.length; i++)
    halvesA[i] = halfBits((a[i] as number) * (factors[Math.floor(i / columns)] as number));
  for (let i = 0; i < b.length; i++) halvesB[i] = halfBits((b[i] as number) / (factors[i % rank] as number));
  if (hasInfinity(halvesA) || hasInfinity(halvesB)) {
    throw invalidAdapter(`the adapter changes ${name} by values too large for 16-bit floats`);
  }
  return { a: new Uint8Array(halvesA.buffer), b: new Uint8Array(halvesB.buffer) };
}

/** Allocates an F16 array for the values and for the padding that follows them in the file. */
function halvesOf({ length }: Float32Array): Uint16Array<ArrayBuffer> {
  return new Uint16Array(aligned(2 * length) / 2);
}

function keepLargest(largest: Float64Array, at: number, value: number): void {
  const size = Math.abs(value);
  if (size > (largest[at] as number)) largest[at] = size;
}

/** Returns the binary exponent of a number >= 0; 0 for the number 0. */
function exponentOf(value: number): number {
  scratch[0] = value;
  return value === 0 ? 0 : ((scratchBits[0] as number) >>> 23) - 127;
}

function hasInfinity(halves: Uint16Array): boolean {
  return halves.some((bits) => (bits & 0x7c00) === 0x7c00);
}
