// dots.llm1 and MiniMax M2: mixtures of experts whose router scores are sigmoids with a bias.
import { gatingFunctions } from "../hyperparameters.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, experts, feedForward, headNorms, outerTensors, preNorms } from "./changes.ts";
import { sharedExperts } from "./deepseek2.ts";

export const dots1: CheckpointArchitecture = {
  name: "dots1",
  classes: ["Dots1ForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, norm_topk_prob: false, routed_scaling_factor: 1, first_k_dense_replace: 0 },
  addPairs(config, pairs) {
    // The engines compute this architecture only with as many key heads as query heads.
    if (config.kvHeads !== config.heads) {
      throw config.unsupported(
        "num_key_value_heads",
        config.kvHeads,
        `${config.heads}, as many as num_attention_heads`,
      );
    }
    pairs.counts({
      leading_dense_block_count: config.countOr(0, "first_k_dense_replace"),
      expert_feed_forward_length: config.count("moe_intermediate_size"),
      expert_shared_count: config.count("n_shared_experts"),
      expert_gating_func: gatingFunctions.sigmoid,
    });
    pairs.floats({ expert_weights_scale: config.number("routed_scaling_factor") });
    pairs.truth("expert_weights_norm", config.truth(false, "norm_topk_prob"));
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...headNorms, ...feedForward, ...experts, ...sharedExperts },
};

export const minimaxM2: CheckpointArchitecture = {
  name: "minimax-m2",
  classes: ["MiniMaxM2ForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, head_dim: 128, qk_norm_type: "per_layer" },
  addPairs(config, pairs) {
    config.mustBe("qk_norm_type", "per_layer");
    const share = ropeSettings(config).main.numberOr(1, "partial_rotary_factor");
    pairs.counts({
      expert_feed_forward_length: config.count("intermediate_size"),
      "rope.dimension_count": config.countOr(Math.trunc(share * config.headLength), "rotary_dim"),
      expert_gating_func: gatingFunctions.sigmoid,
    });
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    ...headNorms,
    "layers.{l}.block_sparse_moe.gate": "blk.{l}.ffn_gate_inp",
    "layers.{l}.block_sparse_moe.e_score_correction_bias": { to: "blk.{l}.exp_probs_b", suffix: ".bias" },
    "layers.{l}.block_sparse_moe.experts.{e}.w1": "blk.{l}.ffn_gate_exps",
    "layers.{l}.block_sparse_moe.experts.{e}.w2": "blk.{l}.ffn_down_exps",
    "layers.{l}.block_sparse_moe.experts.{e}.w3": "blk.{l}.ffn_up_exps",
  },
};
