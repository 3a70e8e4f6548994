// Variants of a model: versions of it whose tensors have different number types. A tuning compares their speeds. If two
// quantization levels lead to the same types, they are one variant. This happens if the rows of the model do not fit the block
// length of a type.
import type { TuneQuality } from "../../actors/api/tuning.ts";
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import type { ModelSource } from "../../engines/quantization/conversion/model-source.ts";
import { type Level, parseLevel } from "../../engines/quantization/plan/levels.ts";
import { plannedBytes, planTypes } from "../../engines/quantization/plan/types.ts";

/** Quantization levels to try, from many bits to few. */
const triedLevels = ["Q8_0", "Q6_K", "Q5_K", "Q4_K"] as const;

export interface Variant {
  /** Quantization level; null if the weights are not quantized further. */
  readonly level: Level | null;
  /** Whether floats are converted to F16. True only for a checkpoint. */
  readonly isF16: boolean;
  /** Name of the type of most weights. */
  readonly typeName: string;
  readonly quality: TuneQuality;
  /** Number of bits per weight in the type of most weights. */
  readonly bits: number;
  /** Size of all weights in the file, in bytes. */
  readonly bytes: number;
}

export interface VariantOptions {
  readonly isCheckpoint: boolean;
  /** The only level to try; null = all levels. */
  readonly level: string | null;
  /** GGUF type of weights that are not quantized; null = as in the files. */
  readonly floatType: number | null;
}

const f16 = 1;

/** Returns the variants. The first one has the weights unchanged. If a level is given, it is the only variant. */
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

/** Returns the size in bytes of the weights of a model if they are stored in these types. */
export function bytesOf({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  return tensors.reduce((sum, { name, shape, type }) => sum + plannedBytes(shape, types.get(name) ?? type), 0);
}

/** Returns the quality class of a number type with `bits` bits per weight. */
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

/** Returns the GGUF type in which most weights of the matrices are stored. */
function mostWeights({ tensors }: ModelSource, types: ReadonlyMap<string, number>): number {
  const counts = new Map<number, number>();
  for (const { name, shape, type, isMatrix } of tensors) {
    if (!isMatrix) continue;
    const planned = types.get(name) ?? type;
    counts.set(planned, (counts.get(planned) ?? 0) + shape.reduce((product, length) => product * length, 1));
  }
  return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most), [0, 0])[0];
}
