// Rope frequencies of a model, with all their scaling, as llama.cpp computes them. Called by hyperparameters.ts at
// load; rotation.ts makes the cosines and sines. Pure.
import { ServerError } from "../../../runtime/errors.ts";
import type { Keys } from "./keys.ts";

export interface Rope {
  /** Radians per position, for each rotated pair. */
  readonly frequencies: Float64Array;
  /** Factor of both cos and sin. */
  readonly magnitude: number;
}

/** Divisors of each pair's frequency, if a file has them as tensors. */
export interface FrequencyFactors {
  /** rope_freqs.weight: used for every context length. */
  readonly always: Float32Array | null;
  /**
   * rope_factors_short.weight and rope_factors_long.weight: for contexts up to the original length, and for longer
   * ones.
   */
  readonly short: Float32Array | null;
  readonly long: Float32Array | null;
}

/** Rope of sliding-window layers if it differs from the others; its frequencies are never scaled. */
export interface SlidingRope {
  readonly base: number;
  readonly magnitude: number;
}

export interface Ropes {
  /** The model's rope, then the sliding layers' rope if they have one. */
  readonly ropes: readonly Rope[];
  /** Replaces the model's rope if a sequence may have more than `beyond` tokens. */
  readonly longRope: { readonly beyond: number; readonly rope: Rope } | null;
}

/** Positions are 32-bit integers everywhere. */
export const maxContext = 2 ** 31 - 1;
export const defaultBase = 10_000;
const baseRange = { above: 1, below: Number.POSITIVE_INFINITY };
const originalKey = "rope.scaling.original_context_length";
/**
 * YaRN: pairs with more than `fast` turns within the original context keep their frequency; pairs with fewer than
 * `slow` turns are scaled by the whole factor. llama.cpp uses these constants, and its own magnitude, for all
 * architectures here. The keys rope.scaling.yarn_* have no effect there or here.
 */
const yarnTurns = { fast: 32, slow: 1 };

/** Throws `model_file_invalid` or `unsupported` naming the key. */
export function readRopes(
  keys: Keys,
  rotated: number,
  trainedContext: number,
  factors: FrequencyFactors,
  sliding: SlidingRope | null,
): Ropes {
  const pairs = rotated / 2;
  const base = readBase(keys, "rope.freq_base", defaultBase);
  const original = keys.countOrNone(originalKey, maxContext) || trainedContext;
  const scaling = readScaling(keys, rotated, base, original);
  const magnitude = scaling.magnitude * readRopeMagnitude(keys);
  const rope = (divisors: Float32Array | null): Rope => {
    const scaled = (plain: number, pair: number) => (plain * scaling.slowdown(pair)) / (divisors?.[pair] ?? 1);
    return { frequencies: plainFrequencies(base, pairs).map(scaled), magnitude };
  };
  const { always, short, long } = factors;
  checkFactors("rope_freqs.weight", always, pairs);
  checkFactors("rope_factors_short.weight", short, pairs);
  checkFactors("rope_factors_long.weight", long, pairs);
  const own = sliding && { frequencies: plainFrequencies(sliding.base, pairs), magnitude: sliding.magnitude };
  return {
    ropes: own ? [rope(always ?? short), own] : [rope(always ?? short)],
    longRope: always === null && (short ?? long) ? { beyond: original, rope: rope(long) } : null,
  };
}

export function readBase(keys: Keys, key: string, fallback: number): number {
  return keys.number(key, baseRange, fallback);
}

/** The file's factor of cos and sin. */
export function readRopeMagnitude(keys: Keys): number {
  return keys.number("rope.scaling.attn_factor", { above: 0, below: 1000 }, 1);
}

function plainFrequencies(base: number, pairs: number): Float64Array {
  return Float64Array.from({ length: pairs }, (_, pair) => base ** (-pair / pairs));
}

function checkFactors(name: string, factors: Float32Array | null, pairs: number): void {
  if (factors === null) return;
  if (factors.length === pairs && factors.every((factor) => factor > 0 && Number.isFinite(factor))) return;
  throw new ServerError(
    "model_file_invalid",
    `${name} holds ${factors.length} numbers; expected ${pairs} numbers above 0: fetch the model again`,
  );
}

interface RopeScaling {
  /** Factor of a pair's frequency. */
  readonly slowdown: (pair: number) => number;
  readonly magnitude: number;
}

function readScaling(keys: Keys, rotated: number, base: number, original: number): RopeScaling {
  const type = keys.value("rope.scaling.type") ?? "linear";
  const factorKey = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  // 0 means: not scaled.
  const factor = keys.numberOr(factorKey, { above: 0, below: 1e6 }, 1);
  switch (type) {
    case "none":
      return { slowdown: () => 1, magnitude: 1 };
    // "longrope" scales by the factors stored as tensors.
    case "linear":
    case "longrope":
      return { slowdown: () => 1 / factor, magnitude: 1 };
    case "yarn":
      return yarn(rotated, base, factor, original);
    default:
      throw keys.unsupported("rope.scaling.type", "none, linear, longrope or yarn");
  }
}

function yarn(rotated: number, base: number, factor: number, original: number): RopeScaling {
  const pairThatTurns = (turns: number) =>
    (rotated * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const lastKept = Math.max(0, Math.floor(pairThatTurns(yarnTurns.fast)));
  const firstWhollySlowed = Math.min(rotated - 1, Math.ceil(pairThatTurns(yarnTurns.slow)));
  const ramp = Math.max(0.001, firstWhollySlowed - lastKept);
  return {
    slowdown: (pair) => {
      const slowed = Math.min(1, Math.max(0, (pair - lastKept) / ramp));
      return slowed / factor + (1 - slowed);
    },
    magnitude: factor > 1 ? 1 + 0.1 * Math.log(factor) : 1,
  };
}
