// Scores of candidates: their speed, weighted with their quality as the profile says.
import type { TuneProfile, TuneQuality, TuneSpeeds } from "../../../actors/api/tuning.ts";

/** Assumed number of computed prompt tokens for each generated token (engines/engine-choice/figures.ts). */
const promptTokensPerNewToken = 2;

/**
 * Factor on the speed of a candidate in the profile `balanced`: a candidate of a lower class is chosen if it is faster by more
 * than the factor between the two.
 */
const qualityFactor: Readonly<Record<TuneQuality, number>> = {
  baseline: 1,
  "near-lossless": 0.97,
  good: 0.9,
  acceptable: 0.78,
  degraded: 0.5,
};

/** Rank of a quality: 0 is the best. */
const ranks: readonly TuneQuality[] = ["baseline", "near-lossless", "good", "acceptable", "degraded"];

/**
 * Tokens per second of a mixed load: each generated token comes with a few prompt tokens, and half of the tokens are generated
 * in batches.
 */
export function mixedSpeed({ prompt, decode, batchedDecode }: TuneSpeeds): number {
  if (decode === null || batchedDecode === null) return prompt;
  return 1 / (promptTokensPerNewToken / prompt + (1 / decode + 1 / batchedDecode) / 2);
}

export interface Scored {
  readonly quality: TuneQuality;
  readonly speeds: TuneSpeeds;
}

/** Value of a candidate; the highest is recommended. */
export function scoreOf({ quality, speeds }: Scored, profile: TuneProfile): number {
  const speed = mixedSpeed(speeds);
  if (profile === "fast") return speed;
  if (profile === "balanced") return speed * qualityFactor[quality];
  // Quality first: the speed decides only between candidates of one class. It is mapped into 0..1.
  return ranks.length - ranks.indexOf(quality) + speed / (1 + speed);
}
