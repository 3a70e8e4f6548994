// LoRA pair: an adapter's change to one matrix of the model, and the location of its values. peft-adapter.ts and
// gguf-adapter.ts convert the two adapter formats to LoRA pairs; prepare.ts reads the values of the pairs.
import type { TensorTable } from "../gguf/tensors.ts";
import { invalidAdapter } from "./adapter-problems.ts";
import { halfValues } from "./half-floats.ts";
import type { SourceFile } from "./source-file.ts";

/**
 * Change of a matrix of shape [rows][columns]: adds scale * b * a. `b` has the shape [rows][rank], and `a` has the
 * shape [rank][columns].
 */
export interface LoraPair {
  /** Name of the matrix in the model's file. */
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  readonly rank: number;
  readonly scale: number;
  readonly a: FloatSpan;
  readonly b: FloatSpan;
  /**
   * Number of heads whose rows are interleaved in the model's file but not in b. In the file, row 2i of a head is row i
   * of that head in b, and row 2i + 1 is row i + (half the rows of a head). 0: the rows of b are in the order of the
   * file.
   */
  readonly turnedHeads: number;
}

export type FloatType = "F32" | "F16" | "BF16";

export const floatBytes: Readonly<Record<FloatType, number>> = { F32: 4, F16: 2, BF16: 2 };

/** Values of a tensor in a file, little-endian. */
export interface FloatSpan {
  readonly file: SourceFile;
  /** Name of the tensor in errors. */
  readonly name: string;
  readonly type: FloatType;
  readonly offset: number;
  readonly count: number;
}

/** Returns rows and columns of a matrix of the model; null if the model has no matrix of that name. */
export function matrixShape({ tensors }: TensorTable, name: string): { rows: number; columns: number } | null {
  const [columns, rows, ...more] = tensors.get(name)?.shape ?? [];
  return columns === undefined || rows === undefined || more.length > 0 ? null : { rows, columns };
}

/** Reads the values of a tensor. Throws `invalid_lora_adapter` if a value is not finite. */
export async function readFloats({ file, name, type, offset, count }: FloatSpan): Promise<Float32Array> {
  const bytes = new Uint8Array(count * floatBytes[type]);
  await file.read(bytes, offset);
  const values = widen(bytes.buffer, type);
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) throw invalidAdapter(`its tensor ${name} has ${values[i]} for number ${i}`);
  }
  return values;
}

function widen(bytes: ArrayBuffer, type: FloatType): Float32Array {
  if (type === "F32") return new Float32Array(bytes);
  const halves = new Uint16Array(bytes);
  const values = new Float32Array(halves.length);
  const numbers = halfValues();
  const bits = new Uint32Array(values.buffer);
  if (type === "BF16") for (let i = 0; i < halves.length; i++) bits[i] = (halves[i] as number) << 16;
  else for (let i = 0; i < halves.length; i++) values[i] = numbers[halves[i] as number] as number;
  return values;
}
