// Ropes: a model's rope frequencies with all their scaling, computed as llama.cpp does. hyperparameters.ts calls
// readRopes() at load; rotation.ts computes the cosines and sines of each pass.
import { ServerError } from "../../../runtime/errors.ts";
import type { Keys } from "./keys.ts";

export interface Rope {
  /** Radians per position; one number for each rotated pair. */
  readonly frequencies: Float64Array;
  /** Factor applied to both the cosine and the sine. */
  readonly magnitude: number;
  /**
   * For a rope in several dimensions: for each rotated pair, the index of the coordinate by which it is rotated
   * (PassDescriptor.coordinates). Null: all pairs are rotated by the token's position.
   */
  readonly axes: Uint8Array | null;
}

/** Number of coordinates of a token (time, row and column) for a rope in several dimensions. */
export const axisCount = 3;

/**
 * Divisors of the rope frequencies. Each array has one number for each rotated pair; null if the file lacks the tensor.
 */
export interface FrequencyFactors {
  /** rope_freqs.weight: applies to every context length. */
  readonly always: Float32Array | null;
  /**
   * rope_factors_short.weight applies to contexts up to the original context length, rope_factors_long.weight to longer
   * contexts.
   */
  readonly short: Float32Array | null;
  readonly long: Float32Array | null;
}

/** Rope of the sliding-window layers, if it differs from that of the other layers. Its frequencies are never scaled. */
export interface SlidingRope {
  readonly base: number;
  readonly magnitude: number;
}

export interface Ropes {
  /** Rope 0 is the model's rope. If the sliding-window layers have their own rope, it is rope 1. */
  readonly ropes: readonly Rope[];
  /** Replaces rope 0 if a sequence may have more than `beyond` tokens; null = never. */
  readonly longRope: { readonly beyond: number; readonly rope: Rope } | null;
}

/** Maximum context length in tokens, because positions are 32-bit integers everywhere. */
export const maxContext = 2 ** 31 - 1;
export const defaultBase = 10_000;
const baseRange = { above: 1, below: Number.POSITIVE_INFINITY };
const originalKey = "rope.scaling.original_context_length";
/**
 * YaRN constants. Pairs with more than `fast` turns within the original context keep their frequency. Pairs with fewer
 * than `slow` turns are scaled by the whole factor. llama.cpp uses these constants for all architectures supported
 * here, and computes the magnitude from the factor. The keys rope.scaling.yarn_* have no effect in llama.cpp or here.
 */
const yarnTurns = { fast: 32, slow: 1 };

/** Computes the ropes of a model. Throws `model_file_invalid` or `unsupported` naming the key. */
export function readRopes(
  keys: Keys,
  rotated: number,
  trainedContext: number,
  factors: FrequencyFactors,
  sliding: SlidingRope | null,
  axes: Uint8Array | null,
): Ropes {
  const pairs = rotated / 2;
  const base = readBase(keys, "rope.freq_base", defaultBase);
  const original = keys.countOrNone(originalKey, maxContext) || trainedContext;
  const scaling = readScaling(keys, rotated, base, original);
  const magnitude = scaling.magnitude * readRopeMagnitude(keys);
  const rope = (divisors: Float32Array | null): Rope => {
    const scaled = (plain: number, pair: number) => (plain * scaling.slowdown(pair)) / (divisors?.[pair] ?? 1);
    return { frequencies: plainFrequencies(base, pairs).map(scaled), magnitude, axes };
  };
  const { always, short, long } = factors;
  checkFactors("rope_freqs.weight", always, pairs);
  checkFactors("rope_factors_short.weight", short, pairs);
  checkFactors("rope_factors_long.weight", long, pairs);
  const own = sliding && {
    frequencies: plainFrequencies(sliding.base, pairs),
    magnitude: sliding.magnitude,
    axes: null,
  };
  return {
    ropes: own ? [rope(always ?? short), own] : [rope(always ?? short)],
    longRope: always === null && (short ?? long) ? { beyond: original, rope: rope(long) } : null,
  };
}

export function readBase(keys: Keys, key: string, fallback: number): number {
  return keys.number(key, baseRange, fallback);
}

/** Returns the factor of both cosine and sine that the file specifies; 1 if the file has no such key. */
export function readRopeMagnitude(keys: Keys): number {
  return keys.number("rope.scaling.attn_factor", { above: 0, below: 1000 }, 1);
}

/** Returns base^(-pair / pairs) for each pair. */
export function plainFrequencies(base: number, pairs: number): Float64Array {
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
  /** Returns the factor by which a pair's frequency is multiplied. */
  readonly slowdown: (pair: number) => number;
  readonly magnitude: number;
}

function readScaling(keys: Keys, rotated: number, base: number, original: number): RopeScaling {
  const type = keys.value("rope.scaling.type") ?? "linear";
  const factorKey = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  // A factor of 0 in the file means that the frequencies are not scaled.
  const factor = keys.numberOr(factorKey, { above: 0, below: 1e6 }, 1);
  switch (type) {
    case "none":
      return { slowdown: () => 1, magnitude: 1 };
    // "longrope" also scales by the frequency factors, which are stored as tensors.
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
