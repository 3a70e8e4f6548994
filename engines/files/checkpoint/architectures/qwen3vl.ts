// Qwen3-VL: Qwen 3 with a rope in three dimensions (interleaved M-RoPE), and further vectors of images that are added after the first
// layers (DeepStack).
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { gateAndUp, turned } from "./changes.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";

/** Layers of the image encoder after which a merger makes a further vector, if vision_config does not name them. */
export const defaultStackedLayers: readonly number[] = [8, 16, 24];

export const qwen3vl: CheckpointArchitecture = {
  name: "qwen3vl",
  classes: ["Qwen3VLForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 4096, intermediate_size: 22_016, num_hidden_layers: 32, num_attention_heads: 32 },
    ...{ num_key_value_heads: 32, head_dim: 128, max_position_embeddings: 128_000, rms_norm_eps: 1e-6 },
    rope_theta: 500_000,
  },
  addPairs: addQwen3vlPairs,
  tensors: qwen3.tensors,
};

export const qwen3vlMoe: CheckpointArchitecture = {
  name: "qwen3vlmoe",
  classes: ["Qwen3VLMoeForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 24, num_attention_heads: 16 },
    ...{ num_key_value_heads: 16, max_position_embeddings: 128_000, rms_norm_eps: 1e-6, rope_theta: 500_000 },
    ...{ moe_intermediate_size: 1408, num_experts: 60, num_experts_per_tok: 4, decoder_sparse_step: 1 },
    // The class has no such field: it always divides the weights of the chosen experts by their sum.
    norm_topk_prob: true,
  },
  addPairs(config, pairs) {
    addQwen3vlPairs(config, pairs);
    qwen3moe.addPairs?.(config, pairs);
  },
  tensors: {
    ...qwen3moe.tensors,
    "layers.{l}.mlp.experts.gate_up_proj": gateAndUp("blk.{l}.ffn_gate_exps", "blk.{l}.ffn_up_exps", turned),
    "layers.{l}.mlp.experts.down_proj": { to: "blk.{l}.ffn_down_exps", change: turned },
  },
};

function addQwen3vlPairs(config: Config, pairs: Pairs): void {
  const sections = ropeSettings(config).main.value("mrope_section");
  if (sections === undefined) throw config.invalid("rope_scaling", sections, "settings with mrope_section");
  const { deepstack_visual_indexes: stacked = defaultStackedLayers } = config.object("vision_config") ?? {};
  if (!Array.isArray(stacked)) {
    throw config.invalid("vision_config.deepstack_visual_indexes", stacked, "a list of layers");
  }
  pairs.counts({ n_deepstack_layers: stacked.length });
}
