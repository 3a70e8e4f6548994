// Hunyuan, dense and mixtures of experts: norms on queries and keys after RoPE.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, experts, feedForward, outerTensors, preNorms } from "./changes.ts";

/** Context length in tokens of models whose RoPE base is increased by `alpha`. Their configs state a shorter length. */
const longContext = 2 ** 18;

/**
 * Adds the RoPE base, increased by the config's factor `alpha`; adds nothing if the config has no such factor. The
 * increased base applies to contexts of all lengths.
 */
function addBase(config: Config, pairs: Pairs): void {
  const { main } = ropeSettings(config);
  const alpha = main.numberOr(undefined, "alpha");
  if (main.text("rope_type") !== "dynamic" || alpha === undefined) return;
  const length = config.headLength;
  pairs.floats({
    "rope.freq_base": main.numberOr(10_000, "rope_theta") * alpha ** (length / (length - 2)),
    "rope.scaling.factor": 1,
  });
  pairs.text("rope.scaling.type", "none");
  pairs.counts({ context_length: longContext, "rope.scaling.original_context_length": longContext });
}

const headNorms: TensorTable = {
  "layers.{l}.self_attn.query_layernorm": "blk.{l}.attn_q_norm",
  "layers.{l}.self_attn.key_layernorm": "blk.{l}.attn_k_norm",
};

export const hunyuanDense: CheckpointArchitecture = {
  name: "hunyuan-dense",
  classes: ["HunYuanDenseV1ForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, use_qk_norm: true },
  addPairs(config, pairs) {
    config.mustBe("use_qk_norm", true);
    addBase(config, pairs);
    for (const key of ["expert_count", "expert_used_count"]) pairs.remove(key);
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...feedForward, ...headNorms },
};

/** Returns a number that config.json states once, or for each layer. Throws `unsupported` if the layers differ. */
function equalCount(config: Config, fallback: number, name: string): number {
  const value = config.value(name);
  if (!Array.isArray(value)) return config.countOr(fallback, name) || fallback;
  const [first = 0, ...others] = config.counts(name, config.layers);
  if (others.every((other) => other === first)) return first;
  throw config.unsupported(name, value, "one number for all layers");
}

export const hunyuanMoe: CheckpointArchitecture = {
  name: "hunyuan-moe",
  classes: ["HunYuanMoEV1ForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, use_qk_norm: true },
  addPairs(config, pairs) {
    config.mustBe("use_qk_norm", true);
    addBase(config, pairs);
    const inner = config.count("intermediate_size");
    const shared = equalCount(config, 1, "num_shared_expert");
    pairs.counts({
      expert_feed_forward_length: equalCount(config, inner, "moe_intermediate_size"),
      expert_shared_feed_forward_length: inner * shared,
      expert_used_count: equalCount(config, 1, "moe_topk"),
      expert_shared_count: shared,
    });
  },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    ...headNorms,
    ...experts,
    "layers.{l}.mlp.gate.wg": "blk.{l}.ffn_gate_inp",
    "layers.{l}.mlp.shared_mlp.gate_proj": "blk.{l}.ffn_gate_shexp",
    "layers.{l}.mlp.shared_mlp.up_proj": "blk.{l}.ffn_up_shexp",
    "layers.{l}.mlp.shared_mlp.down_proj": "blk.{l}.ffn_down_shexp",
  },
};
