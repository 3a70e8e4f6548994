// Plain (unquantised) tensors of a checkpoint: their rows and shapes, and the GGUF type that has their precision.
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { ModelTensors, ShardTensor } from "../../safetensors/shards.ts";
import { type StoredRows, type StoredType, storedBytes } from "../row-source.ts";
import type { SourceTensor } from "../tensor-map.ts";

/** GGUF type numbers by stored number type. Other number types become F32. */
const storedTypes: Partial<Record<StoredType, number>> = { F16: 1, BF16: 30, F8_E4M3: 30, F8_E5M2: 30 };

/** Returns a tensor's values as rows of its last dimension. Throws `unsupported` if their type is unknown. */
export function storedRows(tensor: ShardTensor, { files }: ModelTensors): StoredRows {
  const { type, shape, file, offset } = tensor;
  if (!isStoredType(type)) {
    throw new ServerError(
      "unsupported",
      `${files[file]} has the tensor ${quote(tensor.name)} as ${quote(type)}, which cannot be read; expected one of ` +
        `${Object.keys(storedBytes).join(", ")}: use another copy of the model`,
      { param: "dtype" },
    );
  }
  const columns = shape.at(-1) ?? 1;
  const rows = shape.slice(0, -1).reduce((product, length) => product * length, 1);
  return { kind: "stored", file, offset, type, rows, columns };
}

export function plainTensor(tensor: ShardTensor, model: ModelTensors): SourceTensor {
  const rows = storedRows(tensor, model);
  return {
    name: tensor.name,
    rows,
    shape: tensor.shape.length === 0 ? [1] : tensor.shape.toReversed(),
    storedType: storedTypes[rows.type] ?? 0,
  };
}

function isStoredType(type: string): type is StoredType {
  return Object.hasOwn(storedBytes, type);
}
