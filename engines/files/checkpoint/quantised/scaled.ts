// Scaled 8-bit numbers: FP8 with one scale per tensor, row or block; integers with one scale per row.
import type { ShardTensor } from "../../safetensors/shards.ts";
import type { Config } from "../config.ts";
import { reshaped, scaled } from "../row-changes.ts";
import type { RowSource, StoredRows } from "../row-source.ts";
import type { SourceTensor } from "../tensor-map.ts";
import type { Method, OpenTensors } from "./method.ts";

const scaleEndings = [".weight_scale_inv", ".weight_scale", ".qscale_weight"];
/** Name endings of tensors with scales of activations and of the KV cache, which the engines do not use. */
const unusedEndings = [
  ...[".activation_scale", "_activation_scale", ".input_scale", ".input_scale_ub", ".qscale_act"],
  ...[".k_scale", ".v_scale", ".q_scale", ".output_scale"],
];
/** GGUF type number in which matrices of scaled 8-bit numbers are stored: BF16. */
const bf16 = 30;

/** FP8 of DeepSeek, Qwen, Mistral, FBGEMM and ModelOpt, and 8-bit integers of compressed-tensors. */
export const eightBit: Method = async (tensors, settings) => {
  const made: SourceTensor[] = [];
  for (const ending of scaleEndings) {
    for (const stem of tensors.stems(ending)) made.push(scaledMatrix(tensors, stem, ending, settings));
  }
  // Stacked experts have this ending, because their names have no suffix `.weight`.
  for (const stem of tensors.stems("_scale_inv")) made.push(scaledMatrix(tensors, stem, "_scale_inv", settings));
  tensors.drop(...unusedEndings);
  return made;
};

function scaledMatrix(tensors: OpenTensors, stem: string, ending: string, settings: Config): SourceTensor {
  const name = ending === "_scale_inv" ? stem : `${stem}.weight`;
  const weight = tensors.take(name);
  const scaleName = `${stem}${ending}`;
  const scales = tensors.take(scaleName);
  if (tensors.peek(`${stem}.weight_zero_point`)) {
    throw settings.unsupported("quantization_config", "zero points of 8 bits", "symmetric numbers of 8 bits");
  }
  const rows = blockScaled(tensors, weight, scales, blockSize(settings));
  return { name, rows, shape: weight.shape.toReversed(), storedType: bf16 };
}

function blockSize(settings: Config): readonly number[] | null {
  return settings.numbers("weight_block_size") ?? settings.numbers("block_structure") ?? null;
}

function blockScaled(
  tensors: OpenTensors,
  weight: ShardTensor,
  scales: ShardTensor,
  blocks: readonly number[] | null,
): RowSource {
  const source = tensors.rows(weight);
  const [matrixRows = 1, columns = 1] = weight.shape.slice(-2);
  const matrices = source.rows / matrixRows;
  const stored = tensors.rows(scales);
  const count = stored.rows * stored.columns;
  const size = { rows: source.rows, columns: source.columns };
  const make = (blockRows: number, blockColumns: number, across: number): RowSource => ({
    kind: "blockScaled",
    source,
    scales: reshaped(stored, across),
    ...{ blockRows, blockColumns, matrixRows, ...size },
  });
  if (count === 1 && matrices === 1) return make(matrixRows, columns, 1);
  if (count === matrices) return make(matrixRows, columns, 1);
  if (count === source.rows) return make(1, columns, 1);
  const [blockRows, blockColumns] = blocks ?? inferred(scales, matrixRows, columns);
  const across = Math.ceil(columns / (blockColumns ?? 1));
  const down = Math.ceil(matrixRows / (blockRows ?? 1));
  if (isSize(blockRows) && isSize(blockColumns) && across * down * matrices === count) {
    return make(blockRows, blockColumns, across);
  }
  throw tensors.invalid(scales.name, `it is ${scales.shape.join(" x ")} for ${weight.shape.join(" x ")} numbers`);
}

function isSize(value: number | undefined): value is number {
  return value !== undefined && Number.isInteger(value) && value > 0;
}

function inferred(scales: ShardTensor, matrixRows: number, columns: number): readonly number[] {
  const [down = 1, across = 1] = scales.shape.slice(-2);
  return [matrixRows / down, columns / across];
}

/** Returns the rows of bitsandbytes' 8-bit integers. `largest`: the largest magnitude of each row. */
export function rowScaled(source: StoredRows, largest: StoredRows): RowSource {
  return {
    kind: "blockScaled",
    source,
    scales: scaled(reshaped(largest, 1), 1 / 127),
    ...{
      blockRows: 1,
      blockColumns: source.columns,
      matrixRows: source.rows,
      rows: source.rows,
      columns: source.columns,
    },
  };
}
