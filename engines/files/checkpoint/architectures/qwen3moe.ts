// Qwen 3, mixtures of experts.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, experts, headNorms, outerTensors, preNorms } from "./changes.ts";

export const qwen3moe: CheckpointArchitecture = {
  name: "qwen3moe",
  classes: ["Qwen3MoeForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, norm_topk_prob: false, decoder_sparse_step: 1 },
  addPairs(config, pairs) {
    // The engines divide the weights of the chosen experts by their sum, and have experts in every layer.
    config.mustBe("norm_topk_prob", true);
    config.mustBe("decoder_sparse_step", 1);
    pairs.counts({ expert_feed_forward_length: config.countOr(undefined, "moe_intermediate_size") });
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...headNorms, ...experts },
};
