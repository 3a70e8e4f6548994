// Layers of UQFF as tensors of a checkpoint. Stacks of experts become one tensor for each expert. Their names are the same for all
// architectures: gate_proj, up_proj, down_proj.
import type { UqffFiles } from "../../uqff/uqff-files.ts";
import type { CheckpointArchitecture, TensorTable } from "../architectures/architecture.ts";
import { keyOrder, queryOrder } from "../architectures/changes.ts";
import type { Config } from "../config.ts";
import { sliced } from "../row-changes.ts";
import type { SourceTensor } from "../tensor-map.ts";
import { plainTensor } from "./plain.ts";

/** Field of config.json that states the row order of queries and keys, if the UQFF file was made from a GGUF file. */
const ropeLayout = "_mistralrs_qk_rope_layout";
const stack = /^(.*\.experts)\.(gate|up|down)_proj$/;

export function uqffTensors(files: UqffFiles): SourceTensor[] {
  const layers = files.layers.flatMap(({ key, shape, rows, storedType }): SourceTensor[] => {
    const whole = { name: `${key}.weight`, shape: shape.toReversed(), rows, storedType };
    const [, experts, part] = stack.exec(key) ?? [];
    if (experts === undefined || shape.length !== 3) return [whole];
    const [count = 0, matrixRows = 0] = shape;
    return Array.from({ length: count }, (_, expert) => ({
      name: `${experts}.${expert}.${part}_proj.weight`,
      shape: whole.shape.slice(0, 2),
      rows: sliced(rows, expert * matrixRows, matrixRows),
      storedType,
    }));
  });
  return [...layers, ...files.others.map((tensor) => plainTensor(tensor, files))];
}

/**
 * Returns the architecture to use for a model's UQFF files, with UQFF's names of experts. If config.json says that the rows of queries and
 * keys are already in GGUF's order (in files made from a GGUF file), the architecture does not reorder them.
 */
export function uqffArchitecture(architecture: CheckpointArchitecture, config: Config): CheckpointArchitecture {
  const layout = config.text(ropeLayout) ?? "half_split";
  if (layout !== "half_split" && layout !== "adjacent")
    throw config.invalid(ropeLayout, layout, "half_split or adjacent");
  const isTurn = (change: unknown) => layout === "adjacent" && (change === queryOrder || change === keyOrder);
  const own = Object.entries(architecture.tensors).map(([name, target]) => {
    const isTurned = target !== null && typeof target === "object" && "to" in target && isTurn(target.change);
    return [name, isTurned ? { to: target.to } : target] as const;
  });
  return { ...architecture, tensors: { ...expertNames(architecture), ...Object.fromEntries(own) } };
}

function expertNames({ tensors }: CheckpointArchitecture): TensorTable {
  const prefixes = Object.keys(tensors).flatMap((name) => /^.*\.experts(?=\.)/.exec(name) ?? []);
  const parts = ["gate", "up", "down"].flatMap((part) => {
    return prefixes.map((prefix) => [`${prefix}.{e}.${part}_proj`, `blk.{l}.ffn_${part}_exps`] as const);
  });
  return Object.fromEntries(parts);
}
