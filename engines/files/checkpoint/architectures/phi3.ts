// Phi 3, 3.5, 4 and 4-mini: fused matrices; separate RoPE factors for short and long contexts.
import { type Config, isObject } from "../config.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { outerTensors, preNorms, vector } from "./changes.ts";

function rotated(config: Config): number {
  return Math.floor(
    Math.trunc(ropeSettings(config).main.numberOr(1, "partial_rotary_factor") * config.width) / config.heads,
  );
}

/** Returns the attention factor (`rope.scaling.attn_factor`) for contexts beyond the original length. */
function attentionFactor(config: Config): number {
  const { main } = ropeSettings(config);
  const original = main.count("original_max_position_embeddings");
  const scale = config.count("max_position_embeddings") / original;
  if (scale <= 1) return 1;
  return main.text("rope_type") === "yarn"
    ? 0.1 * Math.log(scale) + 1
    : Math.sqrt(1 + Math.log(scale) / Math.log(original));
}

export const phi3: CheckpointArchitecture = {
  name: "phi3",
  classes: ["Phi3ForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, max_position_embeddings: 4096, original_max_position_embeddings: 4096 },
  addPairs(config, pairs) {
    const { main } = ropeSettings(config);
    pairs.counts({
      "rope.scaling.original_context_length": main.count("original_max_position_embeddings"),
      "attention.head_count_kv": config.kvHeads,
      "rope.dimension_count": rotated(config),
      // 0 is also written, because it distinguishes Phi 4 from the other models.
      "attention.sliding_window": config.countOr(0, "sliding_window"),
    });
    pairs.remove("attention.key_length");
    pairs.remove("attention.value_length");
    // The RoPE factors are stored as tensors, so no scaling type is needed.
    pairs.remove("rope.scaling.type");
    if (isLong(config)) pairs.floats({ "rope.scaling.attn_factor": attentionFactor(config) });
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    "layers.{l}.self_attn.qkv_proj": "blk.{l}.attn_qkv",
    "layers.{l}.self_attn.o_proj": "blk.{l}.attn_output",
    "layers.{l}.mlp.gate_up_proj": "blk.{l}.ffn_up",
    "layers.{l}.mlp.down_proj": "blk.{l}.ffn_down",
  },
  addTensors(config) {
    if (!isLong(config)) return [];
    const { main } = ropeSettings(config);
    const factors = (name: string) => main.numbers(name, rotated(config) / 2) ?? [];
    return [
      vector("rope_factors_long.weight", factors("long_factor")),
      vector("rope_factors_short.weight", factors("short_factor")),
    ];
  },
};

function isLong(config: Config): boolean {
  const scaling = config.value("rope_parameters", "rope_scaling");
  return isObject(scaling) && scaling.long_factor !== undefined && scaling.long_factor !== null;
}
