// Qwen 1.5 and 2, mixtures of experts with a shared expert.
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, experts, outerTensors, preNorms } from "./changes.ts";

export const sharedExpert: TensorTable = {
  "layers.{l}.mlp.shared_expert.gate_proj": "blk.{l}.ffn_gate_shexp",
  "layers.{l}.mlp.shared_expert.up_proj": "blk.{l}.ffn_up_shexp",
  "layers.{l}.mlp.shared_expert.down_proj": "blk.{l}.ffn_down_shexp",
  "layers.{l}.mlp.shared_expert_gate": "blk.{l}.ffn_gate_inp_shexp",
};

export const qwen2moe: CheckpointArchitecture = {
  name: "qwen2moe",
  classes: ["Qwen2MoeForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, norm_topk_prob: false, decoder_sparse_step: 1 },
  addPairs(config, pairs) {
    config.mustBe("norm_topk_prob", false);
    config.mustBe("decoder_sparse_step", 1);
    pairs.counts({
      expert_feed_forward_length: config.countOr(undefined, "moe_intermediate_size"),
      expert_shared_feed_forward_length: config.countOr(undefined, "shared_expert_intermediate_size"),
    });
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...experts, ...sharedExpert },
};
