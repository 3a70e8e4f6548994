// Gemma 4, text: layers without a sliding window have heads of another size; the last layers share keys and values; per-layer embeddings,
// or a mixture of experts in parallel with the feed-forward.
import { Config, isObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, headNorms, vector } from "./changes.ts";
import { addGemma3Pairs } from "./gemma3.ts";
import { checkSharedKeys } from "./gemma3n.ts";

/** Divisor that makes a RoPE frequency so small that its values are not rotated. */
const unrotated = 1e30;

function slidesOf(config: Config): readonly boolean[] {
  const types = config.layerTexts("layer_types", config.layers);
  if (types === undefined) throw config.invalid("layer_types", types, "a text for each layer");
  return types.map((type) => type === "sliding_attention");
}

/**
 * Returns a count for the layers without a sliding window: the field `own` of the config. If the config has no such field, returns
 * `field` of the first of these layers in per_layer_config.
 */
function ofFullLayers(config: Config, own: string, field: string): number | undefined {
  if (config.value(own) !== undefined) return config.count(own);
  const slides = slidesOf(config);
  for (const [layer, settings] of Object.entries(config.object("per_layer_config") ?? {})) {
    if (slides[Number(layer)] !== false || !isObject(settings) || settings[field] === undefined) continue;
    return new Config(config.path, settings).count(field);
  }
  return undefined;
}

function fullHeadLength(config: Config): number {
  return ofFullLayers(config, "global_head_dim", "head_dim") ?? config.headLength;
}

function addGemma4Pairs(config: Config, pairs: Pairs): void {
  addGemma3Pairs(config, pairs);
  const slides = slidesOf(config);
  const shared = config.countOr(0, "num_kv_shared_layers");
  const full = fullHeadLength(config);
  checkSharedKeys(config, slides, shared);
  pairs.truths("attention.sliding_window_pattern", slides);
  pairs.counts({
    "attention.shared_kv_layers": shared,
    embedding_length_per_layer_input: config.countOr(0, "hidden_size_per_layer_input"),
    "attention.key_length": full,
    "attention.value_length": full,
    "attention.key_length_swa": config.headLength,
    "attention.value_length_swa": config.headLength,
    "rope.dimension_count": full,
    "rope.dimension_count_swa": config.headLength,
    expert_feed_forward_length: config.countOr(undefined, "expert_intermediate_size", "moe_intermediate_size"),
  });
  if (config.truth(false, "use_double_wide_mlp")) {
    const length = config.count("intermediate_size");
    const lengths = slides.map((_, layer) => (layer < config.layers - shared ? length : 2 * length));
    pairs.list("feed_forward_length", "i32", lengths);
  }
  const fullHeads = ofFullLayers(config, "num_global_key_value_heads", "num_key_value_heads");
  if (fullHeads !== undefined) {
    const { kvHeads } = config;
    const heads = slides.map((isSliding) => (isSliding ? kvHeads : fullHeads));
    pairs.list("attention.head_count_kv", "i32", heads);
  }
}

export const gemma4: CheckpointArchitecture = {
  name: "gemma4",
  classes: ["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
  defaults: {
    rms_norm_eps: 1e-6,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 30,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
    max_position_embeddings: 131_072,
    sliding_window: 512,
    hidden_size_per_layer_input: 256,
    num_kv_shared_layers: 0,
  },
  addPairs: addGemma4Pairs,
  tensors: {
    embed_tokens: "token_embd",
    embed_tokens_per_layer: "per_layer_token_embd",
    norm: "output_norm",
    lm_head: null,
    per_layer_model_projection: "per_layer_model_proj",
    per_layer_projection_norm: "per_layer_proj_norm",
    ...attention,
    ...headNorms,
    ...feedForward,
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.pre_feedforward_layernorm": "blk.{l}.ffn_norm",
    "layers.{l}.post_feedforward_layernorm": "blk.{l}.post_ffw_norm",
    "layers.{l}.pre_feedforward_layernorm_2": "blk.{l}.pre_ffw_norm_2",
    "layers.{l}.post_feedforward_layernorm_1": "blk.{l}.post_ffw_norm_1",
    "layers.{l}.post_feedforward_layernorm_2": "blk.{l}.post_ffw_norm_2",
    "layers.{l}.layer_scalar": { to: "blk.{l}.layer_output_scale", suffix: ".weight" },
    "layers.{l}.per_layer_input_gate": "blk.{l}.inp_gate",
    "layers.{l}.per_layer_projection": "blk.{l}.proj",
    "layers.{l}.post_per_layer_input_norm": "blk.{l}.post_norm",
    "layers.{l}.router.proj": "blk.{l}.ffn_gate_inp",
    "layers.{l}.router.scale": { to: "blk.{l}.ffn_gate_inp", suffix: ".scale" },
    "layers.{l}.router.per_expert_scale": { to: "blk.{l}.ffn_down_exps", suffix: ".scale" },
    "layers.{l}.experts.gate_up_proj": "blk.{l}.ffn_gate_up_exps",
    "layers.{l}.experts.down_proj": "blk.{l}.ffn_down_exps",
  },
  addTensors(config) {
    // In layers without a sliding window, RoPE rotates a part of each head, with the frequencies of the whole head.
    const pairsOfHead = Math.trunc(fullHeadLength(config) / 2);
    const share = ropeSettings(config).main.numberOr(0.25, "partial_rotary_factor");
    const rotated = Math.trunc((fullHeadLength(config) * share) / 2);
    const factors = Array.from({ length: pairsOfHead }, (_, pair) => (pair < rotated ? 1 : unrotated));
    return [vector("rope_freqs.weight", factors)];
  },
};

/** Text model of Gemma 4 12B, whose class has other defaults. */
export const gemma4Unified: CheckpointArchitecture = {
  ...gemma4,
  classes: ["Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration"],
  defaults: {
    ...gemma4.defaults,
    ...{ max_position_embeddings: 262_144, sliding_window: 1024, hidden_size_per_layer_input: 0 },
  },
};
