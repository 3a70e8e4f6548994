// Quantization plan: the number type that each tensor of a model gets.
import { ServerError } from "../../../runtime/errors.ts";
import { floatTypes, tensorType, tensorTypes } from "../../files/gguf/tensors.ts";
import { fittingType, type Level } from "./levels.ts";
import type { LayerRule } from "./topology.ts";

/** A tensor whose number type is to be chosen. */
export interface PlannedTensor {
  /** GGUF name, for example blk.3.ffn_down.weight. */
  readonly name: string;
  /** Dimensions, columns first. */
  readonly shape: readonly number[];
  /** GGUF type in which the source has the values. */
  readonly type: number;
  /** Whether the tensor may have a smaller type. */
  readonly isMatrix: boolean;
}

export interface TypeOptions {
  /** Level of all layers; null = only layers that the topology names are quantized. */
  readonly level: Level | null;
  /** "moqe": only the matrices of experts are quantized. */
  readonly organization: "default" | "moqe";
  /** Rules for single layers. The first rule that covers a tensor is used. */
  readonly topology: readonly LayerRule[];
  /** GGUF type of float matrices that are not quantized; null = as in the source. */
  readonly floatType: number | null;
}

/** GGUF type of matrices that stay floats, for each value of the setting `dtype`; null = as in the source. */
export const dtypes = { auto: null, f32: tensorType("F32"), f16: tensorType("F16"), bf16: tensorType("BF16") } as const;

const embedding = /^(?:token_embd|output|per_layer_token_embd)\.weight$/;
const expert = /\.ffn_(?:gate|up|down|gate_up)_exps\.weight$/;

/** Whether a tensor contains matrices of experts. */
export function isExpert(tensor: string): boolean {
  return expert.test(tensor);
}

/** Returns the GGUF type of each tensor, by name. */
export function planTypes(tensors: readonly PlannedTensor[], options: TypeOptions): ReadonlyMap<string, number> {
  return new Map(tensors.map((tensor) => [tensor.name, typeOf(tensor, options)]));
}

function typeOf(tensor: PlannedTensor, { level, organization, topology, floatType }: TypeOptions): number {
  const { name, shape, type, isMatrix } = tensor;
  if (!isMatrix) return floatTypes.has(type) ? dtypes.f32 : type;
  const rule = topology.find(({ covers }) => covers(name));
  const chosen = rule === undefined ? level : rule.level;
  const isLeftOut = chosen === null || (rule === undefined && organization === "moqe" && !isExpert(name));
  if (!isLeftOut) {
    const wanted = embedding.test(name) && rule === undefined ? chosen.endsType : chosen.type;
    return fittingType(wanted, shape[0] ?? 1, blockLength);
  }
  return floatType !== null && floatTypes.has(type) ? floatType : type;
}

/** Returns the size of a tensor in bytes if it has the GGUF type `type`. */
export function plannedBytes(shape: readonly number[], type: number): number {
  const { blockBytes } = typeFacts(type);
  return (shape.reduce((product, length) => product * length, 1) / blockLength(type)) * blockBytes;
}

function blockLength(type: number): number {
  return typeFacts(type).blockLength;
}

function typeFacts(type: number) {
  const facts = tensorTypes.get(type);
  if (facts === undefined) throw new ServerError("internal", `expected a GGUF type; got ${type}`);
  return facts;
}
