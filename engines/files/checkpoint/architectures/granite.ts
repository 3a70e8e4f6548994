// Granite 3 and the dense models of Granite 4: Llama with scaled embeddings, residuals, attention scores and logits.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { gateAndUp, llama3Tensors } from "./changes.ts";
import { addLlamaPairs, llamaTensors } from "./llama.ts";

export function addGranitePairs(config: Config, pairs: Pairs): void {
  addLlamaPairs(config, pairs);
  // The official Python class ignores the field head_dim.
  pairs.counts({ "rope.dimension_count": config.width / config.heads });
  pairs.remove("attention.key_length");
  pairs.remove("attention.value_length");
  pairs.floats({
    "attention.scale": config.numberOr(undefined, "attention_multiplier"),
    embedding_scale: config.numberOr(undefined, "embedding_multiplier"),
    residual_scale: config.numberOr(undefined, "residual_multiplier"),
    logit_scale: config.numberOr(undefined, "logits_scaling"),
  });
}

/** Returns for each layer whether it has attention; the other layers of a hybrid have a state space. */
export function attentionLayers(config: Config): readonly boolean[] {
  const types = config.layerTexts("layer_types", config.layers);
  const all = Array.from({ length: config.layers }, () => true);
  return types?.map((type) => type === "attention" || type === "full_attention") ?? all;
}

/** Whether all layers have attention. Some models of the hybrid class do, and are computed as Granite 3. */
function hasOnlyAttention(config: Config): boolean {
  return attentionLayers(config).every((hasAttention) => hasAttention);
}

export const granite: CheckpointArchitecture = {
  name: "granite",
  classes: ["GraniteForCausalLM", "GraniteMoeHybridForCausalLM"],
  applies: (config) => hasOnlyAttention(config) && !config.countOr(0, "num_local_experts"),
  defaults: { rms_norm_eps: 1e-6, position_embedding_type: "rope" },
  addPairs(config, pairs) {
    config.mustBe("position_embedding_type", "rope");
    addGranitePairs(config, pairs);
    // Configs of dense models have these fields, but they have no effect.
    pairs.remove("expert_count");
    pairs.remove("expert_used_count");
  },
  tensors: {
    ...llamaTensors,
    "layers.{l}.shared_mlp.input_linear": gateAndUp("blk.{l}.ffn_gate", "blk.{l}.ffn_up"),
    "layers.{l}.shared_mlp.output_linear": "blk.{l}.ffn_down",
  },
  addTensors: llama3Tensors,
};

export const graniteMoe: CheckpointArchitecture = {
  name: "granitemoe",
  classes: ["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "GraniteMoeHybridForCausalLM"],
  applies: hasOnlyAttention,
  defaults: { rms_norm_eps: 1e-6, position_embedding_type: "rope" },
  addPairs(config, pairs) {
    config.mustBe("position_embedding_type", "rope");
    addGranitePairs(config, pairs);
    pairs.counts({
      expert_shared_feed_forward_length: config.countOr(undefined, "shared_intermediate_size") || undefined,
    });
  },
  tensors: {
    ...llamaTensors,
    "layers.{l}.block_sparse_moe.router.layer": "blk.{l}.ffn_gate_inp",
    "layers.{l}.block_sparse_moe.input_linear": gateAndUp("blk.{l}.ffn_gate_exps", "blk.{l}.ffn_up_exps"),
    "layers.{l}.block_sparse_moe.output_linear": "blk.{l}.ffn_down_exps",
    "layers.{l}.shared_mlp.input_linear": gateAndUp("blk.{l}.ffn_gate_shexp", "blk.{l}.ffn_up_shexp"),
    "layers.{l}.shared_mlp.output_linear": "blk.{l}.ffn_down_shexp",
  },
  addTensors: llama3Tensors,
};
