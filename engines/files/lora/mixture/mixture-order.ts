// X-LoRA order: maps classifier classes to adapters, and matrices to classifier layers. An order file can define both
// maps. By default, classes follow the config, and layers follow the module order of the training library.
import { z } from "zod";
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { TensorTable } from "../../gguf/tensors.ts";
import { invalidAdapter } from "../adapter-problems.ts";
import { readJsonFile } from "../json-file.ts";
import { matrixOf } from "../module-names.ts";
import { mixtureNames } from "./mixture-config.ts";

const orderType = z.object({
  order: mixtureNames.optional(),
  layers: z.record(z.string(), z.int().min(0)).optional(),
});

/** Content of an order file: the order of an X-LoRA model's adapters and layers. If a key is absent, the default order applies. */
export type OrderFile = z.infer<typeof orderType>;

/** Reads an order file. Throws `config_invalid`. */
export async function readOrderFile(path: string): Promise<OrderFile> {
  const content = await readJsonFile(path, "file").catch((cause: unknown) => {
    const problem = cause instanceof ServerError ? cause.message : (cause as Error).message;
    throw wrongOrder(path, problem, cause);
  });
  const parsed = orderType.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw wrongOrder(path, `${quote(issue?.path.join(".") || "its content")}: ${issue?.message}`);
}

/** Matrices of a model layer, in the order in which transformers lists its modules. */
const partsInOrder = [
  ...["attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv"],
  ...["ffn_gate", "ffn_up", "ffn_down", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"],
];

/**
 * Returns the classifier layer of each matrix, numbered in the default order. Throws `invalid_lora_adapter` if the
 * default order cannot be used; an order file is then needed.
 */
export function layersAsFound(matrices: ReadonlySet<string>, layerCount: number): Record<string, number> {
  if (matrices.size !== layerCount) {
    throw invalidAdapter(
      `its classifier distinguishes ${layerCount} layers, but its adapters change ${matrices.size} matrices; say in an ` +
        "order file (xlora_order) which is which",
    );
  }
  const places = new Map([...matrices].map((name) => [name, placeOf(name)]));
  const inOrder = [...matrices].sort((one, other) => (places.get(one) ?? 0) - (places.get(other) ?? 0));
  return Object.fromEntries(inOrder.map((name, layer) => [name, layer]));
}

/** Returns the sort key of a matrix name: its position in the module order of transformers. */
function placeOf(name: string): number {
  if (name === "output.weight") return Number.POSITIVE_INFINITY;
  const [, block, part = ""] = /^blk\.(\d+)\.(.+)\.weight$/.exec(name) ?? [];
  const place = partsInOrder.indexOf(part);
  if (place >= 0) return Number(block) * partsInOrder.length + place;
  throw invalidAdapter(
    `which layer of its classifier is for ${name} is not known; say it in an order file (xlora_order)`,
  );
}

/** Facts against which the layers of an order file are checked. */
export interface LayerFacts {
  /** Names of all matrices that the adapters change. */
  readonly matrices: ReadonlySet<string>;
  /** Number of layers for which the classifier outputs adapter weights. */
  readonly layerCount: number;
  readonly model: TensorTable;
}

/**
 * Converts the layers of an order file, whose keys are modules, to layers whose keys are matrices. `path` is the path
 * of the order file. Throws `config_invalid`.
 */
export function layersAsSaid(
  path: string,
  said: Readonly<Record<string, number>>,
  { matrices, layerCount, model }: LayerFacts,
): Record<string, number> {
  const layers = new Map<string, number>();
  const taken = new Set<number>();
  for (const [module, layer] of Object.entries(said)) {
    if (layer >= layerCount) {
      throw wrongOrder(path, `it gives ${quote(module)} layer ${layer}; the classifier has 0 to ${layerCount - 1}`);
    }
    if (taken.has(layer)) throw wrongOrder(path, `it gives ${quote(module)} layer ${layer}, which another module has`);
    taken.add(layer);
    layers.set(matrixNamed(path, module, model), layer);
  }
  return Object.fromEntries(
    [...matrices].map((name) => {
      const layer = layers.get(name);
      if (layer === undefined) throw wrongOrder(path, `it has no layer for the module of the model's ${name}`);
      return [name, layer];
    }),
  );
}

function matrixNamed(path: string, module: string, model: TensorTable): string {
  try {
    return matrixOf(module.replace(/^base_model\.model\./, ""), model).name;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw wrongOrder(path, error.message, error);
  }
}

function wrongOrder(path: string, problem: string, cause?: unknown): ServerError {
  return new ServerError("config_invalid", `the order file "${path}" of the X-LoRA is wrong: ${problem}`, {
    param: "xlora_order",
    cause,
  });
}
