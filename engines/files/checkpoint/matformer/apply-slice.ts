// Slice of a MatFormer checkpoint: the config and tensors of the smaller model, as if the files contained only that model. Layers are left
// out and the others renumbered, feed-forwards are cut to their first values, and tables with a part per layer lose the parts of layers
// that are left out.
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { Shaped } from "../architectures/architecture.ts";
import type { Config, JsonObject } from "../config.ts";
import { columnRuns, joined, sliced } from "../row-changes.ts";
import type { SourceTensor } from "../tensor-map.ts";
import type { MatformerSlice } from "./slice-file.ts";

/** Default if config.json does not list the layer types: every fifth layer has no sliding window. */
const period = 5;
const tensorName = /^((?:model\.)?(?:language_model\.)?(?:model\.)?)(?:layers\.(\d{1,9})\.(.+)|(\w+)\.weight)$/;

/** Returns the fields of config.json that a slice changes. Throws `config_invalid` if the slice does not fit the model. */
export function slicedFields(slice: MatformerSlice, config: Config): JsonObject {
  const { layers } = config;
  const { feedForward, skipped } = slice;
  const shared = config.countOr(0, "num_kv_shared_layers");
  const wrong = skipped.find((layer) => layer < layers - shared || layer >= layers);
  if (wrong !== undefined) {
    const last = `${layers - shared} to ${layers - 1}`;
    throw misfit(slice, `it skips layer ${wrong}; only the layers ${last} of ${config.path} can be left out`);
  }
  const kept = keptLayers(slice, layers);
  if (kept.length !== feedForward.length) {
    const count = `${feedForward.length} feed-forward lengths for the ${kept.length} layers`;
    throw misfit(slice, `it has ${count} that it leaves of the ${layers} of ${config.path}`);
  }
  const types = config.layerTexts("layer_types", layers) ?? Array.from({ length: layers }, (_, layer) => typeOf(layer));
  const sparsity = config.value("activation_sparsity_pattern");
  const shares = Array.isArray(sparsity) ? config.numbers("activation_sparsity_pattern", layers) : undefined;
  return {
    num_hidden_layers: kept.length,
    num_kv_shared_layers: shared - skipped.length,
    intermediate_size: feedForward,
    layer_types: kept.map((layer) => types[layer]),
    ...(shares && { activation_sparsity_pattern: kept.map((layer) => shares[layer]) }),
  };
}

/** Returns the tensors of a slice. `config`: config of the whole model. */
export function slicedTensors(
  slice: MatformerSlice,
  config: Config,
  tensors: readonly SourceTensor[],
): readonly SourceTensor[] {
  const kept = keptLayers(slice, config.layers);
  const places = new Map(kept.map((layer, place) => [layer, place]));
  return tensors.flatMap((tensor) => {
    const [, prefix = "", layer, part = "", table = ""] = tensorName.exec(tensor.name) ?? [];
    if (layer === undefined) return [{ ...tensor, ...slicedTable(table, tensor, kept, config.layers) }];
    // A tensor whose layer number is too high is kept, so that tensor-map.ts reports it as an error.
    if (Number(layer) >= config.layers) return [tensor];
    const place = places.get(Number(layer));
    if (place === undefined) return [];
    const length = slice.feedForward[place] as number;
    const cut = slicedFeedForward(part, tensor, length, (stored) =>
      misfit(slice, `it takes ${length} of the feed-forward's values in layer ${layer}, which has ${stored}`),
    );
    return [{ ...tensor, ...cut, name: `${prefix}layers.${place}.${part}` }];
  });
}

function slicedFeedForward(
  part: string,
  { rows, shape }: Shaped,
  length: number,
  misfit: (stored: number) => Error,
): Shaped {
  const [columns = 1, count = 1] = shape;
  if (part === "mlp.down_proj.weight") {
    if (length > columns) throw misfit(columns);
    return length === columns
      ? { rows, shape }
      : { rows: columnRuns(rows, [{ first: 0, count: length }]), shape: [length, count] };
  }
  if (part !== "mlp.gate_proj.weight" && part !== "mlp.up_proj.weight") return { rows, shape };
  if (length > count) throw misfit(count);
  return { rows: sliced(rows, 0, length), shape: [columns, length] };
}

/**
 * Cuts a table that has a part for each layer: embeddings by columns, a projection by rows. Other tables, and tables of an unexpected
 * shape, are unchanged.
 */
function slicedTable(name: string, { rows, shape }: Shaped, kept: readonly number[], layers: number): Shaped {
  const [columns = 1, count = 1] = shape;
  if (kept.length === layers) return { rows, shape };
  if (name === "embed_tokens_per_layer" && columns % layers === 0) {
    const length = columns / layers;
    const runs = kept.map((layer) => ({ first: layer * length, count: length }));
    return { rows: columnRuns(rows, runs), shape: [length * kept.length, count] };
  }
  if (name !== "per_layer_model_projection" || count % layers !== 0) return { rows, shape };
  const length = count / layers;
  const parts = kept.map((layer) => sliced(rows, layer * length, length));
  return { rows: joined(parts), shape: [columns, length * kept.length] };
}

function keptLayers({ skipped }: MatformerSlice, layers: number): number[] {
  return Array.from({ length: layers }, (_, layer) => layer).filter((layer) => !skipped.includes(layer));
}

function typeOf(layer: number): string {
  return (layer + 1) % period === 0 ? "full_attention" : "sliding_attention";
}

function misfit({ name }: MatformerSlice, problem: string): ServerError {
  return new ServerError(
    "config_invalid",
    `the slice ${quote(name)} does not fit the model: ${problem}; use a slice that was made for this model`,
    { param: "matformer_slice_name" },
  );
}
