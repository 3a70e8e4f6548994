// GLM 4 (0414) and GLM 4.5, mixtures of experts.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, experts, feedForward, headNorms, outerTensors, preNorms } from "./changes.ts";
import { sharedExperts } from "./deepseek2.ts";

function addRotated(config: Config, pairs: Pairs): void {
  const factor = ropeSettings(config).main.numberOr(0.5, "partial_rotary_factor");
  pairs.counts({ "rope.dimension_count": Math.trunc(config.headLength * factor) });
}

export const glm4: CheckpointArchitecture = {
  name: "glm4",
  classes: ["Glm4ForCausalLM"],
  defaults: { rms_norm_eps: 1.5625e-7, head_dim: 128 },
  addPairs: addRotated,
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    "layers.{l}.post_self_attn_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.mlp.gate_up_proj": "blk.{l}.ffn_up",
    "layers.{l}.mlp.down_proj": "blk.{l}.ffn_down",
    "layers.{l}.post_mlp_layernorm": "blk.{l}.post_ffw_norm",
  },
};

export const glm4moe: CheckpointArchitecture = {
  name: "glm4moe",
  classes: ["Glm4MoeForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, norm_topk_prob: true, head_dim: 128 },
  addPairs(config, pairs) {
    addRotated(config, pairs);
    pairs.counts({
      expert_feed_forward_length: config.count("moe_intermediate_size"),
      expert_shared_count: config.countOr(undefined, "n_shared_experts"),
      leading_dense_block_count: config.countOr(undefined, "first_k_dense_replace"),
      expert_gating_func: 2,
    });
    pairs.floats({ expert_weights_scale: config.numberOr(undefined, "routed_scaling_factor") });
    pairs.truth("expert_weights_norm", config.truth(true, "norm_topk_prob"));
  },
  tensors: {
    ...outerTensors,
    ...attention,
    ...headNorms,
    ...feedForward,
    ...experts,
    ...sharedExperts,
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
  },
  leavesOutExtraLayers: true,
};
