// Model source: a model whose weights can be read row by row, from a GGUF file (split or not) or a checkpoint. Plain data: each
// worker thread of a conversion gets a copy.
import { ggufArchitectureNamed } from "../../files/checkpoint/architectures/named-architecture.ts";
import type { RowSource } from "../../files/checkpoint/row-source.ts";
import { isQuantizable, readTensorTable, type TensorInfo } from "../../files/gguf/tensors.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import type { PlannedTensor } from "../plan/types.ts";
import { readTypedPairs } from "./typed-pairs.ts";

const architectureKey = "general.architecture";

export interface SourceTensor extends PlannedTensor {
  readonly values: RowSource;
}

export interface ModelSource {
  /** Paths of the files. Tensors refer to them by index. */
  readonly files: readonly string[];
  /** All key/value pairs of the GGUF file to write, except general.file_type. */
  readonly pairs: ReadonlyMap<string, TypedValue>;
  readonly tensors: readonly SourceTensor[];
  /** Whether the GGUF file to write names another architecture than the source. */
  readonly isRenamed?: boolean;
}

/**
 * Reads the headers of a GGUF file and its further shards. `named`: architecture in place of the one in the file; keys that begin with the
 * old name are renamed, too. Throws `model_file_invalid`, and `config_invalid` for an unknown name.
 */
export async function openGgufSource(path: string, named: string | null = null): Promise<ModelSource> {
  const { files, tensors } = await readTensorTable(path);
  const pairs = new Map(await readTypedPairs(files[0] ?? path));
  for (const key of pairs.keys()) {
    if (key.startsWith("split.") || key === "general.alignment" || key === "general.file_type") pairs.delete(key);
  }
  const sources = [...tensors.values()].map(sourceTensor);
  const own = pairs.get(architectureKey)?.value;
  const wanted = named === null ? own : ggufArchitectureNamed(named);
  if (wanted === own) return { files, pairs, tensors: sources };
  return { files, pairs: renamed(pairs, String(own), String(wanted)), tensors: sources, isRenamed: true };
}

function renamed(pairs: ReadonlyMap<string, TypedValue>, from: string, to: string): Map<string, TypedValue> {
  const all = [...pairs].map(([key, value]): [string, TypedValue] => {
    return [key.startsWith(`${from}.`) ? `${to}${key.slice(from.length)}` : key, value];
  });
  return new Map([...all, [architectureKey, { type: "string", value: to }]]);
}

function sourceTensor(tensor: TensorInfo): SourceTensor {
  const { name, shape, type } = tensor;
  return { name, shape, type, isMatrix: isQuantizable(tensor), values: blockRows(tensor) };
}

/** Returns the rows of a tensor that is stored in blocks of its type. */
export function blockRows({
  shape,
  type,
  file,
  offset,
}: Pick<TensorInfo, "shape" | "type" | "file" | "offset">): RowSource {
  const [columns = 1, ...others] = shape;
  const rows = others.reduce((product, length) => product * length, 1);
  return { kind: "blocks", file, offset, type, rows, columns };
}
