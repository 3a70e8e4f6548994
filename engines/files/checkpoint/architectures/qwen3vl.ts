// Qwen3-VL: Qwen 3 with a rope in three dimensions (interleaved M-RoPE), and further vectors of images that are added after the first
// layers (DeepStack).
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { qwen3 } from "./qwen3.ts";

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
  addPairs(config, pairs) {
    const sections = ropeSettings(config).main.value("mrope_section");
    if (sections === undefined) throw config.invalid("rope_scaling", sections, "settings with mrope_section");
    const { deepstack_visual_indexes: stacked = defaultStackedLayers } = config.object("vision_config") ?? {};
    if (!Array.isArray(stacked)) {
      throw config.invalid("vision_config.deepstack_visual_indexes", stacked, "a list of layers");
    }
    pairs.counts({ n_deepstack_layers: stacked.length });
  },
  tensors: qwen3.tensors,
};
