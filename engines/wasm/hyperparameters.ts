// Owns the numbers that shape a model: sizes, and the frequencies of its rotary embedding with their scaling. The loader reads
// them once from a file's key/value pairs; keys are those of the llama family, read as llama.cpp reads them. Pure; what it
// hands out is in range, so that nobody below has to ask again.
import { ServerError } from "../../runtime/errors.ts";
import type { GgufValue } from "../gguf/cursor.ts";
import { describeValue } from "../gguf/invalid-file.ts";
import type { TensorInfo } from "../gguf/tensors.ts";

export interface Hyperparameters {
  readonly architecture: string;
  readonly layers: number;
  /** Floats of a token's hidden state. */
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  /** Divides `heads`. */
  readonly kvHeads: number;
  readonly headLength: number;
  /** Floats of a head that are rotated; even. */
  readonly rotated: number;
  readonly epsilon: number;
  /** Most tokens the model was trained for. */
  readonly trainedContext: number;
  readonly vocabSize: number;
  /** Radians per position of each of the rotated / 2 pairs, all scaling applied. */
  readonly ropeFrequencies: Float64Array;
  /** What cos and sin are multiplied with. */
  readonly ropeMagnitude: number;
}

const maxLayers = 1000;
const maxHeads = 4096;
const maxHeadLength = 4096;
/** What the attention kernel's scratch has room for. */
const longestHead = 512;
const maxWidth = 1024 * 1024;
/** Positions are 32-bit numbers everywhere. */
const maxContext = 2 ** 31 - 1;
/** YaRN: pairs that turn more often than `fast` times within the original context keep their frequency, those that turn
 * less than `slow` times are slowed down by the whole factor. */
const yarnTurns = { fast: 32, slow: 1 };

/**
 * The hyperparameters that a file's pairs and tensors tell. `frequencyFactors`, if the file has them, are numbers that each
 * frequency is divided by (the tensor rope_freqs.weight). Throws `model_file_invalid` or `unsupported` naming the key.
 */
export function readHyperparameters(
  fields: ReadonlyMap<string, GgufValue>,
  tensors: ReadonlyMap<string, TensorInfo>,
  frequencyFactors: Float32Array | null,
): Hyperparameters {
  const architecture = fields.get("general.architecture");
  if (typeof architecture !== "string") throw invalid("general.architecture", architecture, "a name");
  const keys = new Keys(fields, `${architecture}.`);
  const width = keys.count("embedding_length", maxWidth);
  const heads = keys.count("attention.head_count", maxHeads);
  const kvHeads = keys.count("attention.head_count_kv", maxHeads, heads);
  if (heads % kvHeads !== 0) throw keys.invalid("attention.head_count_kv", `a divisor of the ${heads} heads`);
  const headLength = keys.count("attention.key_length", maxHeadLength, Math.trunc(width / heads));
  if (headLength > longestHead || headLength % 4 !== 0) {
    throw keys.unsupported("attention.key_length", `heads of a multiple of 4 floats up to ${longestHead}`);
  }
  keys.mustBe("attention.value_length", headLength);
  keys.mustBe("expert_count", 0);
  const rotated = keys.count("rope.dimension_count", headLength, headLength);
  if (rotated % 2 !== 0) throw keys.invalid("rope.dimension_count", "an even number");
  const trainedContext = keys.count("context_length", maxContext);
  return {
    architecture,
    layers: keys.count("block_count", maxLayers),
    width,
    feedForward: keys.count("feed_forward_length", maxWidth),
    heads,
    kvHeads,
    headLength,
    rotated,
    epsilon: keys.number("attention.layer_norm_rms_epsilon", { above: 0, below: 1 }),
    trainedContext,
    vocabSize: readVocabSize(tensors),
    ...readRope(keys, rotated, trainedContext, frequencyFactors),
  };
}

/** The embedding's rows, whatever the key vocab_size says: files whose vocabulary grew often kept the old number there. */
function readVocabSize(tensors: ReadonlyMap<string, TensorInfo>): number {
  const rows = tensors.get("token_embd.weight")?.shape[1];
  if (rows !== undefined) return rows;
  throw new ServerError(
    "model_file_invalid",
    "the model has no matrix token_embd.weight, which every language model needs; fetch a complete file of it",
  );
}

function readRope(
  keys: Keys,
  rotated: number,
  trainedContext: number,
  factors: Float32Array | null,
): Pick<Hyperparameters, "ropeFrequencies" | "ropeMagnitude"> {
  const pairs = rotated / 2;
  checkFactors(factors, pairs);
  const base = keys.number("rope.freq_base", { above: 1, below: Number.POSITIVE_INFINITY }, 10_000);
  const attention = keys.number("rope.scaling.attn_factor", { above: 0, below: 1000 }, 1);
  const scaling = readScaling(keys, rotated, base, trainedContext);
  const ropeFrequencies = Float64Array.from({ length: pairs }, (_, pair) => {
    const unscaled = base ** (-pair / pairs);
    return (unscaled * scaling.slowdown(pair)) / (factors?.[pair] ?? 1);
  });
  return { ropeFrequencies, ropeMagnitude: scaling.magnitude * attention };
}

function checkFactors(factors: Float32Array | null, pairs: number): void {
  if (factors === null) return;
  if (factors.length === pairs && factors.every((factor) => factor > 0 && Number.isFinite(factor))) return;
  throw new ServerError(
    "model_file_invalid",
    `rope_freqs.weight holds ${factors.length} numbers, where ${pairs}, all above 0, belong; fetch the model again`,
  );
}

interface RopeScaling {
  /** What the frequency of a pair is multiplied with. */
  readonly slowdown: (pair: number) => number;
  readonly magnitude: number;
}

function readScaling(keys: Keys, rotated: number, base: number, trainedContext: number): RopeScaling {
  const type = keys.value("rope.scaling.type") ?? "linear";
  const factorKey = keys.value("rope.scaling.factor") === undefined ? "rope.scale_linear" : "rope.scaling.factor";
  // 0 says: not scaled.
  const factor = keys.value(factorKey) === 0 ? 1 : keys.number(factorKey, { above: 0, below: 1e6 }, 1);
  switch (type) {
    case "none":
      return { slowdown: () => 1, magnitude: 1 };
    case "linear":
      return { slowdown: () => 1 / factor, magnitude: 1 };
    case "yarn":
      return yarn(keys, rotated, base, factor, trainedContext);
    default:
      throw keys.unsupported("rope.scaling.type", "none, linear or yarn");
  }
}

function yarn(keys: Keys, rotated: number, base: number, factor: number, trainedContext: number): RopeScaling {
  // llama.cpp goes by these numbers for the llama family whatever the keys say: with others both engines would disagree.
  keys.mustBe("rope.scaling.yarn_ext_factor", 1);
  keys.mustBe("rope.scaling.yarn_attn_factor", 1);
  keys.mustBe("rope.scaling.yarn_beta_fast", yarnTurns.fast);
  keys.mustBe("rope.scaling.yarn_beta_slow", yarnTurns.slow);
  keys.mustBe("rope.scaling.yarn_log_multiplier", 0);
  const originalKey = "rope.scaling.original_context_length";
  const original = keys.value(originalKey) === 0 ? trainedContext : keys.count(originalKey, maxContext, trainedContext);
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

function invalid(key: string, value: GgufValue | undefined, expected: string): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the model's ${key} is ${describeValue(value)}, where ${expected} belongs; fetch another file of the model`,
  );
}

/** Typed look-ups of one architecture's keys, named without the architecture. */
class Keys {
  readonly #fields: ReadonlyMap<string, GgufValue>;
  readonly #prefix: string;

  constructor(fields: ReadonlyMap<string, GgufValue>, prefix: string) {
    this.#fields = fields;
    this.#prefix = prefix;
  }

  value(key: string): GgufValue | undefined {
    return this.#fields.get(this.#prefix + key);
  }

  /** A whole number from 1 to `max`. */
  count(key: string, max: number, fallback?: number): number {
    const value = this.#single(key) ?? fallback;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max) return value;
    throw this.invalid(key, `a whole number from 1 to ${max}`);
  }

  number(key: string, range: { readonly above: number; readonly below: number }, fallback?: number): number {
    const value = this.#single(key) ?? fallback;
    if (typeof value === "number" && value > range.above && value < range.below) return value;
    throw this.invalid(key, `a number above ${range.above} and below ${range.below}`);
  }

  /** Refuses a key that says something else; one that is absent says the same. */
  mustBe(key: string, expected: number): void {
    if ((this.#single(key) ?? expected) !== expected) throw this.unsupported(key, String(expected));
  }

  invalid(key: string, expected: string): ServerError {
    return invalid(this.#prefix + key, this.value(key), expected);
  }

  unsupported(key: string, expected: string): ServerError {
    return new ServerError(
      "unsupported",
      `the model's ${this.#prefix}${key} is ${describeValue(this.value(key))}; the wasm engine runs ${expected}: ` +
        "use --engine llama for this model",
      { param: "engine" },
    );
  }

  #single(key: string): GgufValue | undefined {
    const value = this.value(key);
    if (Array.isArray(value)) throw this.unsupported(key, "models with one value for all layers");
    return value;
  }
}
