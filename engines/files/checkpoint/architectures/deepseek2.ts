// DeepSeek V2 and V3: attention with compressed keys and values (MLA), groups of experts.
import type { Config } from "../config.ts";
import { ropeSettings } from "../rope.ts";
import { picked, transposed } from "../row-changes.ts";
import type { Change, CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { experts, feedForward, outerTensors, preNorms } from "./changes.ts";

/** Tensors of the shared experts, and the bias that is used to choose experts. */
export const sharedExperts: TensorTable = {
  "layers.{l}.mlp.gate.e_score_correction_bias": { to: "blk.{l}.exp_probs_b", suffix: ".bias" },
  "layers.{l}.mlp.shared_experts.gate_proj": "blk.{l}.ffn_gate_shexp",
  "layers.{l}.mlp.shared_experts.up_proj": "blk.{l}.ffn_up_shexp",
  "layers.{l}.mlp.shared_experts.down_proj": "blk.{l}.ffn_down_shexp",
};

interface HeadSizes {
  readonly heads: number;
  /** Rows of each head: `key` is the number of key rows that are not rotated, `value` the number of value rows. */
  readonly key: number;
  readonly value: number;
}

function headSizes(config: Config): HeadSizes {
  return { heads: config.kvHeads, key: config.count("qk_nope_head_dim"), value: config.count("v_head_dim") };
}

/** Extracts and transposes each head's key matrix, with which llama.cpp multiplies the queries. */
const keys: Change = ({ rows, shape }, config) => {
  const { heads, key, value } = headSizes(config);
  const own = picked(rows, { period: key + value, first: 0, count: key });
  return { rows: transposed(own, key), shape: [key, shape[0] ?? 1, heads] };
};

const values: Change = ({ rows, shape }, config) => {
  const { heads, key, value } = headSizes(config);
  return {
    rows: picked(rows, { period: key + value, first: key, count: value }),
    shape: [shape[0] ?? 1, value, heads],
  };
};

export const deepseek2: CheckpointArchitecture = {
  name: "deepseek2",
  classes: ["DeepseekV2ForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, kv_lora_rank: 512, rope_interleave: true },
  addPairs(config, pairs) {
    config.mustBe("rope_interleave", true);
    const rank = config.count("kv_lora_rank");
    const rotated = config.count("qk_rope_head_dim");
    const hasExperts = config.value("n_routed_experts") !== undefined;
    pairs.counts({
      // Keys and values of all heads are computed from one compressed row.
      "attention.head_count_kv": 1,
      "attention.q_lora_rank": config.countOr(undefined, "q_lora_rank"),
      "attention.kv_lora_rank": rank,
      "attention.key_length": rank + rotated,
      "attention.value_length": rank,
      "attention.key_length_mla": config.count("qk_nope_head_dim") + rotated,
      "attention.value_length_mla": config.count("v_head_dim"),
      "rope.dimension_count": rotated,
      vocab_size: config.count("vocab_size"),
      leading_dense_block_count: config.countOr(hasExperts ? 0 : config.layers, "first_k_dense_replace"),
      expert_feed_forward_length: config.count("moe_intermediate_size", "intermediate_size"),
      expert_shared_count: config.countOr(0, "n_shared_experts"),
    });
    pairs.floats({ expert_weights_scale: config.numberOr(undefined, "routed_scaling_factor") });
    if (config.truth(false, "norm_topk_prob")) pairs.truth("expert_weights_norm", true);
    // llama.cpp divides the stored multiplier by 0.1, so 0.1 times mscale_all_dim is stored.
    const mscale = ropeSettings(config).main.numberOr(undefined, "mscale_all_dim");
    if (mscale !== undefined) pairs.floats({ "rope.scaling.yarn_log_multiplier": 0.1 * mscale });
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...feedForward,
    ...experts,
    ...sharedExperts,
    "layers.{l}.self_attn.q_proj": "blk.{l}.attn_q",
    "layers.{l}.self_attn.q_a_proj": "blk.{l}.attn_q_a",
    "layers.{l}.self_attn.q_a_layernorm": "blk.{l}.attn_q_a_norm",
    "layers.{l}.self_attn.q_b_proj": "blk.{l}.attn_q_b",
    "layers.{l}.self_attn.kv_a_proj_with_mqa": "blk.{l}.attn_kv_a_mqa",
    "layers.{l}.self_attn.kv_a_layernorm": "blk.{l}.attn_kv_a_norm",
    "layers.{l}.self_attn.kv_b_proj": [
      { to: "blk.{l}.attn_k_b", change: keys },
      { to: "blk.{l}.attn_v_b", change: values },
    ],
    "layers.{l}.self_attn.o_proj": "blk.{l}.attn_output",
  },
  leavesOutExtraLayers: true,
};

/** DeepSeek V3: the router has another gating function, which newer configs do not name. */
export const deepseek3: CheckpointArchitecture = {
  ...deepseek2,
  classes: ["DeepseekV3ForCausalLM"],
  defaults: { ...deepseek2.defaults, scoring_func: "sigmoid", norm_topk_prob: true },
};

/** GLM 4.7 Flash: like DeepSeek V3, but the config lists the layers with experts. */
export const glm4MoeLite: CheckpointArchitecture = {
  ...deepseek3,
  classes: ["Glm4MoeLiteForCausalLM"],
  defaults: { ...deepseek3.defaults, rms_norm_eps: 1e-5 },
  addPairs(config, pairs) {
    deepseek3.addPairs?.(config, pairs);
    const types = config.layerTexts("mlp_layer_types", config.layers);
    if (types === undefined) return;
    const dense = types.findIndex((type) => type !== "dense");
    if (dense < 0 || types.slice(dense).some((type) => type !== "sparse")) {
      throw config.unsupported("mlp_layer_types", types, "dense layers followed by sparse ones");
    }
    pairs.counts({ leading_dense_block_count: dense });
  },
};
