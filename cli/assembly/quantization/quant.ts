// Setting `quant`: a quantization to find among the files of a model, or else to create.
import { floatTypes } from "../../../engines/files/gguf/tensors.ts";
import { artifactNames, type Level, parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { availableMemory } from "../../../runtime/host/memory.ts";

/** Value that leaves the level to this program. */
const auto = "auto";
/** Levels that `auto` may choose, the best first. */
const autoLevels = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"] as const;
/** Share of the free memory that the weights may take. The rest is for the KV cache and the passes. */
const weightShare = 0.6;
/** Files from which a missing quantization is best made, by the quantisation in their name. */
const sources = ["BF16", "F16", "F32", "Q8_0"] as const;

/** Returns the quantisations of files to look for, best first. */
export function wantedFiles(quant: string | number | null): readonly string[] {
  if (quant === null || quant === auto) return [];
  return [...artifactNames(parseLevel(quant, "quant")), ...sources];
}

/**
 * Returns the level to create from a source whose matrices have the GGUF type `sourceType`; null: the source is taken as it is.
 * `bytesAt` returns the size of the model at a level.
 */
export async function levelToCreate(
  quant: string | number,
  sourceType: number,
  bytesAt: (level: Level) => Promise<number>,
): Promise<Level | null> {
  if (quant !== auto) {
    const level = parseLevel(quant, "quant");
    return level.type === sourceType ? null : level;
  }
  if (!floatTypes.has(sourceType)) return null;
  const room = availableMemory() * weightShare;
  const levels = autoLevels.map((name) => parseLevel(name, "quant"));
  for (const level of levels) if ((await bytesAt(level)) <= room) return level;
  return levels.at(-1) ?? null;
}
