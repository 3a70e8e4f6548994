// RoPE of a checkpoint: its settings, which config.json may have in several forms; the GGUF pairs made from them; and the frequency factors
// of Llama 3 and of long contexts.
import { Config, isObject, type JsonObject } from "./config.ts";
import type { Pairs } from "./pairs.ts";

export interface RopeSettings {
  /** RoPE settings of the model; those of the layers with full attention, if the config has separate ones for them. */
  readonly main: Config;
  /** RoPE base of layers with a sliding window; undefined if the config has none. */
  readonly slidingBase: number | undefined;
}

const baseFields = ["rope_theta", "global_rope_theta", "rope_global_theta", "rope_theta_global", "rotary_emb_base"];
const slidingFields = [
  "local_rope_theta",
  "rope_local_theta",
  "rope_theta_local",
  "swa_rope_theta",
  "rope_local_base_freq",
];

/** Reads the RoPE settings: `rope_parameters` or `rope_scaling`, which may be split by kind of layer, or fields of the config itself. */
export function ropeSettings(config: Config): RopeSettings {
  const nested = config.object("rope_parameters", "rope_scaling") ?? {};
  const { full_attention: full, sliding_attention: sliding } = nested;
  if (isObject(full) || isObject(sliding)) {
    const base = isObject(sliding) ? sliding.rope_theta : undefined;
    return {
      main: new Config(config.path, isObject(full) ? full : {}),
      slidingBase: typeof base === "number" ? base : undefined,
    };
  }
  const own: JsonObject = {
    rope_theta: config.value(...baseFields),
    rope_type: nested.type,
    partial_rotary_factor: config.value("partial_rotary_factor", "rope_pct", "rope_percent"),
    original_max_position_embeddings: config.value("original_max_position_embeddings"),
  };
  const present = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== undefined && value !== null));
  return {
    main: new Config(config.path, { ...present, ...nested }),
    slidingBase: config.numberOr(undefined, ...slidingFields),
  };
}

/** Adds the RoPE pairs. Throws `unsupported` if no engine computes the scaling. */
export function addRope(config: Config, pairs: Pairs): void {
  const { main, slidingBase } = ropeSettings(config);
  pairs.floats({
    "rope.freq_base": main.numberOr(undefined, "rope_theta"),
    "rope.freq_base_swa": slidingBase,
  });
  addScaling(config, main, pairs);
  const sections = main.numbers("mrope_section");
  if (sections) pairs.list("rope.dimension_sections", "i32", [...sections, 0, 0, 0, 0].slice(0, 4));
}

function addScaling(config: Config, main: Config, pairs: Pairs): void {
  const type = main.text("rope_type") ?? "default";
  switch (type) {
    // These types need no pair: they keep the frequencies, keep them up to the trained length (dynamic), or change them by a tensor
    // (llama3).
    case "default":
    case "dynamic":
    case "llama3":
    case "mrope":
      return;
    case "linear":
      pairs.text("rope.scaling.type", "linear");
      pairs.floats({ "rope.scaling.factor": main.number("factor") });
      return;
    case "su":
    case "longrope":
      pairs.text("rope.scaling.type", "longrope");
      return;
    case "yarn":
      addYarn(config, main, pairs);
      return;
    default:
      // The type `proportional` of Gemma 4 needs no pair, because a tensor changes the frequencies.
      if (type === "proportional" && pairs.architecture === "gemma4") return;
      throw config.unsupported("rope_scaling.rope_type", type, "linear, dynamic, llama3, yarn and longrope");
  }
}

function addYarn(config: Config, main: Config, pairs: Pairs): void {
  pairs.text("rope.scaling.type", "yarn");
  pairs.floats({ "rope.scaling.factor": main.number("factor") });
  const original = main.value("original_max_position_embeddings") === undefined ? config : main;
  pairs.counts({
    "rope.scaling.original_context_length": original.count(
      "original_max_position_embeddings",
      "max_position_embeddings",
    ),
  });
  pairs.floats({
    "rope.scaling.yarn_ext_factor": main.numberOr(undefined, "extrapolation_factor"),
    "rope.scaling.yarn_attn_factor": main.numberOr(undefined, "attention_factor", "attn_factor"),
    "rope.scaling.yarn_beta_fast": main.numberOr(undefined, "beta_fast"),
    "rope.scaling.yarn_beta_slow": main.numberOr(undefined, "beta_slow"),
  });
}

/** Returns the divisors of Llama 3's RoPE frequencies, one per rotated pair; null if the model has another RoPE. */
export function llama3Factors(config: Config): readonly number[] | null {
  const { main } = ropeSettings(config);
  if (main.text("rope_type") !== "llama3") return null;
  const base = main.numberOr(10_000, "rope_theta");
  const factor = main.numberOr(8, "factor");
  const low = main.numberOr(1, "low_freq_factor");
  const high = main.numberOr(4, "high_freq_factor");
  const original = main.numberOr(8192, "original_max_position_embeddings");
  const rotated = config.headLength;
  return Array.from({ length: Math.ceil(rotated / 2) }, (_, pair) => {
    const length = 2 * Math.PI * base ** ((2 * pair) / rotated);
    if (length < original / high) return 1;
    if (length > original / low) return factor;
    const smooth = (original / length - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}
