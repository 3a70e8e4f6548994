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
  /** Attention temperature, if this rope rotates queries only; absent otherwise. */
  readonly temperature?: AttentionTemperature;
}

/**
 * Attention temperature of Ministral 3: a query at `position` is multiplied by 1 + scale * ln(1 + floor(position / length)). This
 * keeps attention sharp in long contexts.
 */
export interface AttentionTemperature {
  readonly scale: number;
  /** Number of positions that have the same factor. */
  readonly length: number;
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
  /** Rope 0 is the model's rope. If the sliding-window layers, or all queries, have their own rope, it is rope 1. */
  readonly ropes: readonly Rope[];
  /** Index of the rope of the queries of all layers; null = the rope of the keys. */
  readonly queryRope: number | null;
  /** Replaces rope 0 if a sequence may have more than `beyond` tokens; null = never. */
  readonly longRope: { readonly beyond: number; readonly rope: Rope } | null;
}

/** Maximum context length in tokens, because positions are 32-bit integers everywhere. */
export const maxContext = 2 ** 31 - 1;
export const defaultBase = 10_000;
const baseRange = { above: 1, below: Number.POSITIVE_INFINITY };
const originalKey = "rope.scaling.original_context_length";
/** YaRN constants. */
export interface Yarn {
  /** Key beta_fast: pairs that make more rotations than this within the original context keep their frequency. */
  readonly fast: number;
  /** Key beta_slow: pairs that make fewer rotations than this are scaled by the whole factor. */
  readonly slow: number;
  /** The magnitude is divided by 1 + 0.1 * logMultiplier * ln(factor); 0: no division. */
  readonly logMultiplier: number;
}

/**
 * Constants that llama.cpp uses for most architectures, whatever the keys rope.scaling.yarn_* say. Other architectures read
 * these keys in `readTraits`.
 */
export const usualYarn: Yarn = { fast: 32, slow: 1, logMultiplier: 0 };

/** Properties of the ropes that an architecture reads from its own keys. */
export interface RopeTraits {
  /** Rope of the sliding-window layers; it becomes rope 1. */
  readonly sliding?: SlidingRope;
  /** See Rope.axes. */
  readonly axes?: Uint8Array;
  /** Default: usualYarn. */
  readonly yarn?: Yarn;
  /**
   * Scale of the attention temperature, whose length is the original context; 0 or absent = none. Excludes `sliding`, `axes` and a
   * long rope.
   */
  readonly temperatureScale?: number;
}

/** Computes the ropes of a model. Throws `model_file_invalid` or `unsupported` naming the key. */
export function readRopes(
  keys: Keys,
  rotated: number,
  trainedContext: number,
  factors: FrequencyFactors,
  { sliding, axes, yarn = usualYarn, temperatureScale = 0 }: RopeTraits,
): Ropes {
  const pairs = rotated / 2;
  const base = readBase(keys, "rope.freq_base", defaultBase);
  const original = keys.countOrNone(originalKey, maxContext) || trainedContext;
  const scaling = readScaling(keys, { rotated, base, original, constants: yarn });
  const magnitude = scaling.magnitude * readRopeMagnitude(keys);
  const rope = (divisors: Float32Array | null): Rope => {
    const scaled = (plain: number, pair: number) => (plain * scaling.slowdown(pair)) / (divisors?.[pair] ?? 1);
    return { frequencies: plainFrequencies(base, pairs).map(scaled), magnitude, axes: axes ?? null };
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
  const main = rope(always ?? short);
  if (temperatureScale !== 0 && (sliding !== undefined || axes !== undefined)) {
    throw new Error("a rope with an attention temperature excludes other ropes");
  }
  const hasLongRope = always === null && (short ?? long) !== null;
  if (hasLongRope && temperatureScale !== 0)
    throw keys.unsupported("attention.temperature_scale", "only 0 for models with factors of a long rope");
  const ropes: Rope[] = own ? [main, own] : [main];
  if (temperatureScale !== 0) ropes.push({ ...main, temperature: { scale: temperatureScale, length: original } });
  return {
    ropes,
    queryRope: temperatureScale === 0 ? null : ropes.length - 1,
    longRope: hasLongRope ? { beyond: original, rope: rope(long) } : null,
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

/** Inputs of readScaling. `original`: original context length in tokens. */
interface ScalingInputs {
  readonly rotated: number;
  readonly base: number;
  readonly original: number;
  readonly constants: Yarn;
}

function readScaling(keys: Keys, inputs: ScalingInputs): RopeScaling {
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
      return yarnScaling(factor, inputs);
    default:
      throw keys.unsupported("rope.scaling.type", "none, linear, longrope or yarn");
  }
}

function yarnScaling(factor: number, { rotated, base, original, constants }: ScalingInputs): RopeScaling {
  const pairThatTurns = (turns: number) =>
    (rotated * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const lastKept = Math.max(0, Math.floor(pairThatTurns(constants.fast)));
  const firstWhollySlowed = Math.min(rotated - 1, Math.ceil(pairThatTurns(constants.slow)));
  const ramp = Math.max(0.001, firstWhollySlowed - lastKept);
  return {
    slowdown: (pair) => {
      const slowed = Math.min(1, Math.max(0, (pair - lastKept) / ramp));
      return slowed / factor + (1 - slowed);
    },
    magnitude: yarnMagnitude(factor, 1) / yarnMagnitude(factor, constants.logMultiplier),
  };
}

function yarnMagnitude(factor: number, multiplier: number): number {
  return factor > 1 ? 1 + 0.1 * multiplier * Math.log(factor) : 1;
}
