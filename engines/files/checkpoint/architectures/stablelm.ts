// StableLM: layer norms, RoPE on a part of each head; attention and feed-forward run in parallel in some models.
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, outerTensors, preNorms } from "./changes.ts";

export const stablelm: CheckpointArchitecture = {
  name: "stablelm",
  classes: ["StableLmForCausalLM", "StableLMEpochForCausalLM"],
  defaults: { layer_norm_eps: 1e-5, norm_eps: 1e-5, partial_rotary_factor: 0.25 },
  addPairs(config, pairs) {
    const factor = ropeSettings(config).main.numberOr(0.25, "partial_rotary_factor");
    pairs.counts({ "rope.dimension_count": Math.trunc(factor * config.headLength) });
    pairs.truth("use_parallel_residual", config.truth(true, "use_parallel_residual"));
    pairs.floats({ "attention.layer_norm_epsilon": config.number("layer_norm_eps", "norm_eps") });
    pairs.remove("attention.layer_norm_rms_epsilon");
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    ...feedForward,
    "layers.{l}.self_attn.q_layernorm.norms.{e}": "blk.{l}.attn_q_norm",
    "layers.{l}.self_attn.k_layernorm.norms.{e}": "blk.{l}.attn_k_norm",
  },
};
