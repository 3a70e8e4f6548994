// Setting `quant`: the desired quantization. If the model has a file with this quantization, the file is used; otherwise it is
// created.
import { floatTypes } from "../../../engines/files/gguf/tensors.ts";
import { artifactNames, type Level, parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { hostFacts } from "../../../runtime/host/system.ts";

/** Value of the setting with which this program chooses the level. */
const auto = "auto";
/** Levels that `auto` may choose, the best first. */
const autoLevels = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"] as const;
/** Memory that is left to the system and other programs: `bytes` bytes, but at most the fraction `share` of all memory. */
const reserve = { bytes: 2 ** 30, share: 0.25 };
/**
 * Fraction of the remaining memory that the weights may occupy. The rest is for the KV cache and the buffers of forward passes.
 */
const weightShare = 0.6;
/** Files from which a missing quantization can be created, by the quantization in their name, best first. */
const sources = ["BF16", "F16", "F32", "Q8_0"] as const;

/**
 * Memory that weights may occupy. It does not depend on the memory that is free now, so that the choice is always the same on
 * one machine.
 */
export interface WeightRoom {
  readonly bytes: number;
  /** Explanation of `bytes`, for the log. */
  readonly reason: string;
}

/** Returns the memory that weights may occupy. `totalBytes`: memory of the machine, or the memory limit of the process. */
export function weightRoom(totalBytes = hostFacts().memory.totalBytes): WeightRoom {
  const reserved = Math.min(reserve.bytes, totalBytes * reserve.share);
  const bytes = Math.floor((totalBytes - reserved) * weightShare);
  const parts = `${weightShare * 100} % of ${gibibytes(totalBytes)} of memory less a reserve of ${gibibytes(reserved)}`;
  return { bytes, reason: `${gibibytes(bytes)}, ${parts}` };
}

/** Returns whether this program chooses the quantization level. */
export function isAuto(quant: string | number | null): boolean {
  return quant === auto;
}

/** Returns the quantizations of files to search for, best first. */
export function wantedFiles(quant: string | number | null): readonly string[] {
  if (quant === null || quant === auto) return [];
  return [...artifactNames(parseLevel(quant, "quant")), ...sources];
}

/**
 * Returns the level to create from a source whose matrices have the GGUF type `sourceType`; null if the source is used
 * unchanged. `bytesAt` returns the size in bytes of the model at a level.
 */
export async function levelToCreate(
  quant: string | number,
  sourceType: number,
  bytesAt: (level: Level) => Promise<number>,
  log: (message: string) => void,
  room = weightRoom(),
): Promise<Level | null> {
  if (quant !== auto) {
    const level = parseLevel(quant, "quant");
    return level.type === sourceType ? null : level;
  }
  if (!floatTypes.has(sourceType)) return null;
  const levels = autoLevels.map((name) => parseLevel(name, "quant"));
  for (const level of levels) {
    const bytes = await bytesAt(level);
    const fits = bytes <= room.bytes;
    if (!fits && level !== levels.at(-1)) continue;
    const why = fits ? "the best level that fits" : "the smallest level, though it does not fit";
    log(`quant auto takes ${level.name} (${gibibytes(bytes)}), ${why} ${room.reason}`);
    return level;
  }
  return null;
}

export function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
