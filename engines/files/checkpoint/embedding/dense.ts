// Dense layers of an embedding model: two matrices that follow the pooling (EmbeddingGemma), or one that projects each token
// (ColBERT).
import { ServerError } from "../../../../runtime/errors.ts";
import type { ModelTensors } from "../../safetensors/shards.ts";
import type { Pairs } from "../pairs.ts";
import { plainTensor } from "../quantised/plain.ts";
import type { TensorRecipe } from "../tensor-map.ts";

const names = ["dense_2", "dense_3"];

export interface DenseLayers {
  readonly files: readonly string[];
  readonly tensors: readonly TensorRecipe[];
}

/**
 * Adds the sizes of the layers to the GGUF key/value pairs, and returns the layers' tensors. `most`: number of layers that the engines
 * support: 2 after pooling, or 1 per token. `firstFile`: index of the layers' first file among all files of the model. Throws `unsupported`
 * for other layers.
 */
export function denseLayers(
  layers: readonly ModelTensors[],
  most: 1 | 2,
  firstFile: number,
  pairs: Pairs,
): DenseLayers {
  if (layers.length > 0 && layers.length !== most) throw unsupported(layers, most, `${layers.length} dense layers`);
  const tensors = layers.map((layer, i): TensorRecipe => {
    const weight = layer.tensors.get("linear.weight");
    if (!weight || layer.tensors.size > 1) throw unsupported(layers, most, "a dense layer that is more than a matrix");
    const { rows, shape, storedType } = plainTensor(weight, layer);
    const [columns = 1, count = 1] = shape;
    const name = names[i] as string;
    pairs.counts({ [`${name}_feat_in`]: columns, [`${name}_feat_out`]: count });
    if (rows.kind !== "stored") throw new Error("a plain tensor is not stored");
    const stored = { ...rows, file: firstFile + i };
    return { name: `${name}.weight`, shape, storedType, isMatrix: true, rows: stored, from: [] };
  });
  return { files: layers.flatMap(({ files }) => files), tensors };
}

function unsupported(layers: readonly ModelTensors[], most: number, what: string): ServerError {
  return new ServerError(
    "unsupported",
    `${layers[0]?.files[0]} belongs to ${what}, which the engines do not compute; expected ${most} ` +
      `${most === 1 ? "matrix" : "matrices"} without a bias: use another model`,
    { param: "modules" },
  );
}
