// Files quantized with an importance matrix, for the comparison of perplexities: one file from our encoder, and one with the bytes of
// llama.cpp's encoder (ggml_quantize_chunk) for the same values, types and matrix. The matrix is computed on a text of this
// repository.
import assert from "node:assert/strict";
import { closeSync, copyFileSync, openSync, readFileSync, writeSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { collectFromText } from "../../engines/calibration/collect-from-text.ts";
import { floatTypes, readTensorTable, type TensorInfo } from "../../engines/files/gguf/tensors.ts";
import { convert, planConversion } from "../../engines/quantization/conversion/conversion.ts";
import { openGgufSource, type SourceTensor } from "../../engines/quantization/conversion/model-source.ts";
import type { Importance } from "../../engines/quantization/importance/importance-file.ts";
import { importanceOf } from "../../engines/quantization/importance/importance-writer.ts";
import { createRowReader } from "../../engines/quantization/rows/rows.ts";
import { type NativeCodec, openNativeCodec } from "../../test/fixtures/quantization/native-codec.ts";
import { squaredError } from "../../test/fixtures/quantization/rows.ts";

/** Calibration text, on which the importance matrix is computed. The perplexity is measured on another text. */
export const calibrationText = "docs/models.md";
/** Length of the calibration text in characters: about 4,000 tokens. */
const textLength = 16_000;

/** Returns the importance of each column of the matrices of the model at `path`. */
export async function collectImportance(path: string): Promise<Importance> {
  const text = readFileSync(fileURLToPath(new URL(`../../../${calibrationText}`, import.meta.url)), "utf8");
  const options = { threads: availableParallelism(), text: text.slice(0, textLength), onProgress: () => {} };
  const { sums } = await collectFromText(path, options);
  return importanceOf(sums);
}

/** Quantization errors of our file divided by the errors of llama.cpp's file: squared errors, weighted by column importance. */
export interface ErrorRatios {
  /** Geometric mean of the tensors' ratios. */
  readonly mean: number;
  /** Largest ratio of a tensor. */
  readonly largest: number;
}

/**
 * Quantizes the model at `from` with an importance matrix: with our encoder to the file `ours`, with llama.cpp's encoder to
 * `theirs`. The tensors get the types of the file `like`, which llama.cpp's quantizer wrote without an importance matrix.
 * Returns the error ratios of the encoded tensors that have an importance; null if there are none. Throws if llama.cpp's
 * encoder, used without the importance matrix, does not reproduce the bytes of `like`.
 */
export async function writeWithImportance(
  { from, like, ours, theirs }: Readonly<Record<"from" | "like" | "ours" | "theirs", string>>,
  importance: Importance,
): Promise<ErrorRatios | null> {
  const native = await openNativeCodec();
  const source = await openGgufSource(from);
  const written = await readTensorTable(like);
  const types = new Map([...written.tensors].map(([name, tensor]) => [name, tensor.type]));
  const plan = { source, types, importance: new Map(importance), fileType: null };
  await convert(await planConversion(plan), { target: ours, threads: availableParallelism() });
  copyFileSync(ours, theirs);
  const { tensors } = await readTensorTable(theirs);
  const reader = createRowReader(source.files);
  const file = openSync(theirs, "r+");
  const reference = readFileSync(like);
  const own = readFileSync(ours);
  const ratios: number[] = [];
  try {
    for (const tensor of source.tensors) {
      const target = tensors.get(tensor.name) as TensorInfo;
      if (floatTypes.has(target.type) || target.type === tensor.type) continue;
      const values = new Float32Array(tensor.values.rows * tensor.values.columns);
      reader.read(tensor.values, 0, tensor.values.rows, values);
      const before = written.tensors.get(tensor.name) as TensorInfo;
      const expected = reference.subarray(before.offset, before.offset + before.bytes);
      assert.ok(
        encoded(native, tensor, target, values, null).equals(expected),
        `${tensor.name} is not encoded as by llama.cpp`,
      );
      const weights = importance.get(tensor.name) ?? null;
      const bytes = encoded(native, tensor, target, values, weights);
      writeSync(file, bytes, 0, bytes.length, target.offset);
      if (weights === null) continue;
      const errorOf = (written: Uint8Array): number => {
        const decoded = new Float32Array(values.length);
        native.decode(target.type, written, decoded);
        return squaredError({ values, columns: tensor.values.columns }, decoded, weights);
      };
      ratios.push(errorOf(own.subarray(target.offset, target.offset + target.bytes)) / errorOf(bytes));
    }
  } finally {
    reader.close();
    closeSync(file);
  }
  if (ratios.length === 0) return null;
  const logarithms = ratios.map(Math.log);
  return {
    mean: Math.exp(logarithms.reduce((sum, one) => sum + one, 0) / logarithms.length),
    largest: Math.max(...ratios),
  };
}

function encoded(
  native: NativeCodec,
  { values: { columns } }: SourceTensor,
  { type, bytes }: TensorInfo,
  values: Float32Array,
  importance: Float32Array | null,
): Buffer {
  const out = Buffer.alloc(bytes);
  native.encode(type, values, columns, importance, out);
  return out;
}
