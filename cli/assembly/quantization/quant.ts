// Setting `quant`: a quantization to find among the files of a model, or else to create.
import { floatTypes } from "../../../engines/files/gguf/tensors.ts";
import { artifactNames, type Level, parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { hostFacts } from "../../../runtime/host/system.ts";

/** Value that leaves the level to this program. */
const auto = "auto";
/** Levels that `auto` may choose, the best first. */
const autoLevels = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"] as const;
/** Memory in bytes left to the system and other programs, and the largest share of all memory that it takes. */
const reserve = { bytes: 2 ** 30, share: 0.25 };
/** Share of the other memory that the weights may take. The rest is for the KV cache and the passes. */
const weightShare = 0.6;
/** Files from which a missing quantization is best made, by the quantisation in their name. */
const sources = ["BF16", "F16", "F32", "Q8_0"] as const;

/** Memory that weights may take. It does not depend on what is free now, so that the same machine has the same answer. */
export interface WeightRoom {
  readonly bytes: number;
  /** How it was found, for the log. */
  readonly reason: string;
}

/** `totalBytes`: memory of the machine, or less if the process has a limit. */
export function weightRoom(totalBytes = hostFacts().memory.totalBytes): WeightRoom {
  const reserved = Math.min(reserve.bytes, totalBytes * reserve.share);
  const bytes = Math.floor((totalBytes - reserved) * weightShare);
  const parts = `${weightShare * 100} % of ${gibibytes(totalBytes)} of memory less a reserve of ${gibibytes(reserved)}`;
  return { bytes, reason: `${gibibytes(bytes)}, ${parts}` };
}

/** Whether this program chooses the level. */
export function isAuto(quant: string | number | null): boolean {
  return quant === auto;
}

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
