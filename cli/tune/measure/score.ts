// Scores of candidates: speed and quality, weighted according to the profile.
import type { TuneProfile, TuneQuality, TuneSpeeds } from "../../../actors/api/tuning.ts";

/** Assumed number of computed prompt tokens for each generated token (engines/engine-choice/figures.ts). */
const promptTokensPerNewToken = 2;

/**
 * Factors that the profile `balanced` applies to the speed of a candidate, by its quality class. So a candidate of a lower
 * class is chosen only if its speed advantage is larger than the ratio of the two factors.
 */
const qualityFactor: Readonly<Record<TuneQuality, number>> = {
  baseline: 1,
  "near-lossless": 0.97,
  good: 0.9,
  acceptable: 0.78,
  degraded: 0.5,
};

/** Quality classes, best first. */
const ranks: readonly TuneQuality[] = ["baseline", "near-lossless", "good", "acceptable", "degraded"];

/**
 * Returns the estimated tokens per second under a mixed load: a few prompt tokens are computed for each generated token, and
 * half of the tokens are generated in batches.
 */
export function mixedSpeed({ prompt, decode, batchedDecode }: TuneSpeeds): number {
  if (decode === null || batchedDecode === null) return prompt;
  return 1 / (promptTokensPerNewToken / prompt + (1 / decode + 1 / batchedDecode) / 2);
}

export interface Scored {
  readonly quality: TuneQuality;
  readonly speeds: TuneSpeeds;
}

/** Returns the score of a candidate. The candidate with the highest score is recommended. */
export function scoreOf({ quality, speeds }: Scored, profile: TuneProfile): number {
  const speed = mixedSpeed(speeds);
  if (profile === "fast") return speed;
  if (profile === "balanced") return speed * qualityFactor[quality];
  // Quality first: the rank of the quality class counts. The speed is mapped into 0..1, so it decides only between candidates
  // of the same class.
  return ranks.length - ranks.indexOf(quality) + speed / (1 + speed);
}
