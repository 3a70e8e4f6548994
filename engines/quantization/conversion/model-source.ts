// Model source: a model whose weights can be read row by row, from a GGUF file (split or not) or a checkpoint. Plain data: each
// worker thread of a conversion gets a copy.
import type { RowSource } from "../../files/checkpoint/row-source.ts";
import { readTensorTable, type TensorInfo } from "../../files/gguf/tensors.ts";
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

/**
 * Matrices that are never quantized: they are small, and errors in them change much. Routers choose experts; positions and token
 * types are added to every token; convolutions have rows of a few values.
 */
const kept =
  /(?:_norm|^rope_freqs|^rope_factors_\w+|^position_embd|^token_types|\.ffn_gate_inp(?:_shexp)?|\.ssm_conv1d\w*|\.shortconv\.conv|(?:^|\.)altup_\w+|^per_layer_model_proj|\.laurel_\w+|\.attn_rel_b|\.time_mix_(?!key|value|receptance|gate|output)\w+|^cls(?:\.output)?)\.weight$/;

/** Reads the heads of a GGUF file and its further shards. Throws `model_file_invalid`. */
export async function openGgufSource(path: string): Promise<ModelSource> {
  const { files, tensors } = await readTensorTable(path);
  const pairs = new Map(await readTypedPairs(files[0] ?? path));
  for (const key of pairs.keys()) {
    if (key.startsWith("split.") || key === "general.alignment" || key === "general.file_type") pairs.delete(key);
  }
  return { files, pairs, tensors: [...tensors.values()].map(sourceTensor) };
}

function sourceTensor({ name, shape, type, file, offset }: TensorInfo): SourceTensor {
  const isMatrix = shape.length > 1 && name.endsWith(".weight") && !kept.test(name);
  return { name, shape, type, isMatrix, values: { kind: "blocks", file, offset, type } };
}
