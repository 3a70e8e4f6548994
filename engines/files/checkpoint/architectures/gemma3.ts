// Gemma 3, text: norms on queries and keys; layers with a sliding window have their own RoPE.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { plusOne } from "./changes.ts";
import { checkScoreScale, gemma2Tensors, unusualSlides } from "./gemma2.ts";

export const gemma3Defaults = {
  rms_norm_eps: 1e-6,
  head_dim: 256,
  max_position_embeddings: 131_072,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  query_pre_attn_scalar: 256,
  sliding_window: 4096,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 26,
  rope_theta: 1_000_000,
  rope_local_base_freq: 10_000,
};
/** Every sixth layer has no sliding window. */
const period = 6;

export function addGemma3Pairs(config: Config, pairs: Pairs): void {
  pairs.floats({
    "rope.freq_base": ropeSettings(config).main.numberOr(1_000_000, "rope_theta"),
    final_logit_softcapping: config.numberOr(undefined, "final_logit_softcapping"),
  });
  if (config.value("attn_logit_softcapping") !== undefined) {
    throw config.unsupported("attn_logit_softcapping", config.value("attn_logit_softcapping"), "none");
  }
  if (config.value("sliding_window_pattern") === 1) return;
  pairs.counts({ "attention.sliding_window": config.count("sliding_window") });
  const slides = slidesOf(config);
  if (slides) pairs.truths("attention.sliding_window_pattern", slides);
}

function slidesOf(config: Config): readonly boolean[] | null {
  const every = config.countOr(period, "sliding_window_pattern", "_sliding_window_pattern");
  if (config.value("layer_types") !== undefined || every === period) return unusualSlides(config, period);
  return Array.from({ length: config.layers }, (_, layer) => (layer + 1) % every !== 0);
}

export const gemma3: CheckpointArchitecture = {
  name: "gemma3",
  classes: ["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
  defaults: gemma3Defaults,
  addPairs(config, pairs) {
    checkScoreScale(config, 62);
    addGemma3Pairs(config, pairs);
  },
  tensors: {
    ...gemma2Tensors,
    "layers.{l}.self_attn.q_norm": { to: "blk.{l}.attn_q_norm", change: plusOne },
    "layers.{l}.self_attn.k_norm": { to: "blk.{l}.attn_k_norm", change: plusOne },
  },
};

/** EmbeddingGemma: bidirectional attention; two dense layers follow the pooling. */
export const gemmaEmbedding: CheckpointArchitecture = {
  ...gemma3,
  name: "gemma-embedding",
  classes: ["Gemma3TextModel"],
  pools: true,
  hasDenseLayers: true,
};
