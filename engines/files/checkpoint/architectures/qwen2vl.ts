// Qwen2-VL and Qwen2.5-VL: Qwen 2 with a rope in three dimensions (M-RoPE).
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { qwen2 } from "./qwen2.ts";

export const qwen2vl: CheckpointArchitecture = {
  name: "qwen2vl",
  classes: ["Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 8192, intermediate_size: 29_568, num_hidden_layers: 80, num_attention_heads: 64 },
    ...{ num_key_value_heads: 8, max_position_embeddings: 32_768, rms_norm_eps: 1e-5, rope_theta: 1_000_000 },
  },
  addPairs(config) {
    const sections = ropeSettings(config).main.value("mrope_section");
    if (sections === undefined) throw config.invalid("rope_scaling", sections, "settings with mrope_section");
  },
  tensors: qwen2.tensors,
};
