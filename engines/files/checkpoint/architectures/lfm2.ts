// LFM 2: short convolutions in most layers, attention in the others; dense, or mixtures of experts.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { headNorms, squeezed } from "./changes.ts";

function addLfm2Pairs(config: Config, pairs: Pairs): void {
  const types = config.layerTexts("layer_types", config.layers);
  if (types === undefined) throw config.invalid("layer_types", undefined, "a text for each layer");
  const { kvHeads } = config;
  // 0 heads mark a layer with a convolution.
  const heads = types.map((type) => (type === "full_attention" ? kvHeads : 0));
  pairs.list("attention.head_count_kv", "i32", heads);
  pairs.counts({ vocab_size: config.count("vocab_size"), "shortconv.l_cache": config.count("conv_L_cache") });
  pairs.floats({ "attention.layer_norm_rms_epsilon": config.number("norm_eps", "block_norm_eps") });
}

/**
 * Returns the feed-forward length. Configs with block_auto_adjust_ff_dim state a nominal length: the real length is two
 * thirds of it, times block_ffn_dim_multiplier, rounded up to a multiple of block_multiple_of.
 */
function feedForwardLength(config: Config): number {
  const given = config.count("block_ff_dim", "intermediate_size");
  if (!config.truth(false, "block_auto_adjust_ff_dim")) return given;
  const multiple = config.count("block_multiple_of");
  const length = Math.trunc((2 * given) / 3);
  return multiple * Math.ceil(Math.trunc(config.numberOr(1, "block_ffn_dim_multiplier") * length) / multiple);
}

const lfm2Tensors: TensorTable = {
  embed_tokens: "token_embd",
  embedding_norm: "token_embd_norm",
  lm_head: "output",
  "layers.{l}.operator_norm": "blk.{l}.attn_norm",
  "layers.{l}.ffn_norm": "blk.{l}.ffn_norm",
  "layers.{l}.conv.conv": { to: "blk.{l}.shortconv.conv", change: squeezed },
  "layers.{l}.conv.in_proj": "blk.{l}.shortconv.in_proj",
  "layers.{l}.conv.out_proj": "blk.{l}.shortconv.out_proj",
  "layers.{l}.self_attn.q_proj": "blk.{l}.attn_q",
  "layers.{l}.self_attn.k_proj": "blk.{l}.attn_k",
  "layers.{l}.self_attn.v_proj": "blk.{l}.attn_v",
  "layers.{l}.self_attn.out_proj": "blk.{l}.attn_output",
  "layers.{l}.self_attn.q_layernorm": "blk.{l}.attn_q_norm",
  "layers.{l}.self_attn.k_layernorm": "blk.{l}.attn_k_norm",
  ...headNorms,
  "layers.{l}.feed_forward.w1": "blk.{l}.ffn_gate",
  "layers.{l}.feed_forward.w2": "blk.{l}.ffn_down",
  "layers.{l}.feed_forward.w3": "blk.{l}.ffn_up",
};

export const lfm2: CheckpointArchitecture = {
  name: "lfm2",
  classes: ["Lfm2ForCausalLM", "LFM2ForCausalLM"],
  defaults: {
    norm_eps: 1e-5,
    conv_L_cache: 3,
    block_auto_adjust_ff_dim: true,
    block_multiple_of: 256,
    block_ffn_dim_multiplier: 1,
  },
  addPairs(config, pairs) {
    addLfm2Pairs(config, pairs);
    pairs.counts({ feed_forward_length: feedForwardLength(config) });
  },
  tensors: lfm2Tensors,
};

export const lfm2moe: CheckpointArchitecture = {
  name: "lfm2moe",
  classes: ["Lfm2MoeForCausalLM"],
  defaults: { norm_eps: 1e-5, conv_L_cache: 3 },
  addPairs(config, pairs) {
    addLfm2Pairs(config, pairs);
    pairs.counts({
      expert_feed_forward_length: config.count("moe_intermediate_size"),
      leading_dense_block_count: config.countOr(0, "num_dense_layers"),
      expert_gating_func: 2,
    });
  },
  tensors: {
    ...lfm2Tensors,
    "layers.{l}.feed_forward.gate": "blk.{l}.ffn_gate_inp",
    "layers.{l}.feed_forward.expert_bias": { to: "blk.{l}.exp_probs_b", suffix: ".bias" },
    "layers.{l}.feed_forward.experts.{e}.w1": "blk.{l}.ffn_gate_exps",
    "layers.{l}.feed_forward.experts.{e}.w2": "blk.{l}.ffn_down_exps",
    "layers.{l}.feed_forward.experts.{e}.w3": "blk.{l}.ffn_up_exps",
  },
};
