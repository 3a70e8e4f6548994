// Model source: a model whose weights can be read row by row, from a GGUF file (split or not) or a checkpoint. Plain data: each
// worker thread of a conversion gets a copy.
import type { RowSource } from "../../files/checkpoint/row-source.ts";
import { isQuantizable, readTensorTable, type TensorInfo } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import type { PlannedTensor } from "../plan/types.ts";
import { readTypedPairs } from "./typed-pairs.ts";

/** Rows of a GGUF file, in blocks of their type. */
export interface BlockRows {
  readonly kind: "blocks";
  /** Index of the file in the source's files. */
  readonly file: number;
  readonly offset: number;
  /** GGUF type number. */
  readonly type: number;
}

export interface SourceTensor extends PlannedTensor {
  readonly values: BlockRows | RowSource;
}

export interface ModelSource {
  /** Paths that the tensors name by index. */
  readonly files: readonly string[];
  /** All key/value pairs of the GGUF file to write, except general.file_type. */
  readonly pairs: ReadonlyMap<string, TypedValue>;
  readonly tensors: readonly SourceTensor[];
}

/** Reads the heads of a GGUF file and its further shards. Throws `model_file_invalid`. */
export async function openGgufSource(path: string): Promise<ModelSource> {
  const { files, tensors } = await readTensorTable(path);
  const pairs = new Map(await readTypedPairs(files[0] ?? path));
  for (const key of pairs.keys()) {
    if (key.startsWith("split.") || key === "general.alignment" || key === "general.file_type") pairs.delete(key);
  }
  return { files, pairs, tensors: [...tensors.values()].map(sourceTensor) };
}

function sourceTensor(tensor: TensorInfo): SourceTensor {
  const { name, shape, type, file, offset } = tensor;
  return { name, shape, type, isMatrix: isQuantizable(tensor), values: { kind: "blocks", file, offset, type } };
}
