// OLMoE: a mixture of experts; the norms on queries and keys span all heads.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, experts, headNorms, outerTensors, preNorms } from "./changes.ts";

export const olmoe: CheckpointArchitecture = {
  name: "olmoe",
  classes: ["OlmoeForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, norm_topk_prob: false },
  addPairs(config) {
    config.mustBe("norm_topk_prob", false);
    config.mustBe("num_key_value_heads", config.heads);
    if (config.value("clip_qkv") !== undefined) throw config.unsupported("clip_qkv", config.value("clip_qkv"), "none");
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...headNorms, ...experts },
};
