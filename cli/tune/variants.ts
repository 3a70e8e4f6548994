// Variants of a model: the number types in which it is measured. Levels that give the same types as another, because the rows
// of the model do not fit the blocks of a type, are one variant.
import type { TuneQuality } from "../../actors/api/tuning.ts";
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import type { ModelSource } from "../../engines/quantization/conversion/model-source.ts";
import { type Level, parseLevel } from "../../engines/quantization/plan/levels.ts";
import { plannedBytes, planTypes } from "../../engines/quantization/plan/types.ts";

/** Levels that are tried, from many bits to few. */
const triedLevels = ["Q8_0", "Q6_K", "Q5_K", "Q4_K"] as const;

export interface Variant {
  /** Level of the quantization; null: the weights as they are. */
  readonly level: Level | null;
  /** Whether floats are written as F16. Only of a checkpoint, whose files have other floats. */
  readonly isF16: boolean;
  /** Name of the type of most weights. */
  readonly typeName: string;
  readonly quality: TuneQuality;
  /** Bits of a weight in the type of most weights. */
  readonly bits: number;
  /** Size of all weights in the file. */
  readonly bytes: number;
}

export interface VariantOptions {
  readonly isCheckpoint: boolean;
  /** The only level to try; null: all. */
  readonly level: string | null;
  /** GGUF type of floats that are not quantized; null: as in the files. */
  readonly floatType: number | null;
}

const f16 = 1;

/** Returns the variants, the weights as they are first. A given level is the only variant. */
export function variantsOf(source: ModelSource, { isCheckpoint, level, floatType }: VariantOptions): Variant[] {
  const known = new Set<string>();
  const variants: Variant[] = [];
  const add = (tried: Level | null, isF16: boolean) => {
    const types = typesOf(source, tried, isF16 ? f16 : floatType);
    const key = [...types.values()].join(",");
    if (known.has(key)) return;
    known.add(key);
    variants.push(variantOf(source, types, tried, isF16));
  };
  if (level !== null) {
    add(parseLevel(level, "isq"), false);
    return variants;
  }
  add(null, false);
  if (isCheckpoint && floatType === null) add(null, true);
  for (const name of triedLevels) add(parseLevel(name, "isq"), false);
  return variants;
}

/** Returns the GGUF type of each tensor. */
export function typesOf(
  { tensors }: ModelSource,
  level: Level | null,
  floatType: number | null,
): ReadonlyMap<string, number> {
  return planTypes(tensors, { level, organization: "default", topology: [], floatType });
}

/** Returns the size of the weights of a source in these types. */
export function bytesOf({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  return tensors.reduce((sum, { name, shape, type }) => sum + plannedBytes(shape, types.get(name) ?? type), 0);
}

/** Class of a type with `bits` bits a weight. */
export function qualityOf(bits: number): TuneQuality {
  if (bits >= 16) return "baseline";
  if (bits >= 8) return "near-lossless";
  if (bits >= 5) return "good";
  return bits >= 4 ? "acceptable" : "degraded";
}

function variantOf(
  source: ModelSource,
  types: ReadonlyMap<string, number>,
  level: Level | null,
  isF16: boolean,
): Variant {
  const facts = tensorTypes.get(mostWeights(source, types));
  const bits = facts === undefined ? 0 : (facts.blockBytes * 8) / facts.blockLength;
  const isOwn = level === null && !isF16;
  return {
    level,
    isF16,
    typeName: facts?.name ?? "unknown",
    quality: isOwn ? "baseline" : qualityOf(bits),
    bits,
    bytes: bytesOf(source, types),
  };
}

/** Returns the type of most weights of the matrices. */
function mostWeights({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  const counts = new Map<number, number>();
  for (const { name, shape, type, isMatrix } of tensors) {
    if (!isMatrix) continue;
    const planned = types.get(name) ?? type;
    counts.set(planned, (counts.get(planned) ?? 0) + shape.reduce((product, length) => product * length, 1));
  }
  return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most), [0, 0])[0];
}
