// Gemma 2: norms before and after attention and feed-forward, sliding windows, soft-capped scores and logits.
import type { Config } from "../config.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { plusOne } from "./changes.ts";
import { gemmaTensors } from "./gemma.ts";

export const gemma2Tensors: TensorTable = {
  ...gemmaTensors,
  "layers.{l}.post_attention_layernorm": { to: "blk.{l}.post_attention_norm", change: plusOne },
  "layers.{l}.pre_feedforward_layernorm": { to: "blk.{l}.ffn_norm", change: plusOne },
  "layers.{l}.post_feedforward_layernorm": { to: "blk.{l}.post_ffw_norm", change: plusOne },
};

/**
 * Throws if the config divides attention scores by another number than the engines do. The engines divide by the square root of the head
 * length, and in the model with `exception` layers by the square root of width / heads.
 */
export function checkScoreScale(config: Config, exception: number): void {
  const expected = config.layers === exception ? Math.trunc(config.width / config.heads) : config.headLength;
  config.mustBe("query_pre_attn_scalar", expected);
}

/**
 * Returns for each layer whether it has a sliding window; null if the layers have the usual pattern, in which every layer has one except
 * each `period`-th.
 */
export function unusualSlides(config: Config, period: number): readonly boolean[] | null {
  const types = config.layerTexts("layer_types", config.layers);
  const slides = types?.map((type) => type === "sliding_attention");
  return slides?.some((slide, layer) => slide !== layer % period < period - 1) ? slides : null;
}

export const gemma2: CheckpointArchitecture = {
  name: "gemma2",
  classes: ["Gemma2ForCausalLM"],
  defaults: {
    rms_norm_eps: 1e-6,
    head_dim: 256,
    max_position_embeddings: 8192,
    num_key_value_heads: 4,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    attn_logit_softcapping: 50,
    final_logit_softcapping: 30,
  },
  addPairs(config, pairs) {
    checkScoreScale(config, 46);
    pairs.floats({
      attn_logit_softcapping: config.number("attn_logit_softcapping"),
      final_logit_softcapping: config.number("final_logit_softcapping"),
    });
    pairs.counts({ "attention.sliding_window": config.count("sliding_window") });
    const slides = unusualSlides(config, 2);
    if (slides) pairs.truths("attention.sliding_window_pattern", slides);
  },
  tensors: gemma2Tensors,
};
