// Mistral Small 3 and Ministral 3: Llama; Ministral has YaRN, and scales queries by their position.
import type { Config } from "../config.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { llama3Tensors } from "./changes.ts";
import { addLlamaPairs, llamaTensors } from "./llama.ts";

const isMinistral = (config: Config) => config.value("model_type") === "ministral3";

export const mistral3: CheckpointArchitecture = {
  name: "mistral3",
  classes: ["Mistral3ForConditionalGeneration"],
  // Mistral 4 is another architecture with the same class.
  applies: (config) => config.value("model_type") !== "mistral4" && !isMinistral(config),
  defaults: {
    rms_norm_eps: 1e-6,
    hidden_size: 4096,
    intermediate_size: 14_336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 131_072,
    vocab_size: 32_000,
    rope_theta: 10_000,
  },
  addPairs: addLlamaPairs,
  tensors: llamaTensors,
  addTensors: llama3Tensors,
};

export const ministral3: CheckpointArchitecture = {
  ...mistral3,
  classes: ["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
  applies: isMinistral,
  defaults: {
    ...mistral3.defaults,
    rms_norm_eps: 1e-5,
    num_hidden_layers: 34,
    max_position_embeddings: 262_144,
    vocab_size: 131_072,
  },
  addPairs(config, pairs) {
    addLlamaPairs(config, pairs);
    const { main } = ropeSettings(config);
    pairs.floats({
      "rope.scaling.yarn_log_multiplier": main.numberOr(undefined, "mscale_all_dim"),
      "attention.temperature_scale": main.numberOr(undefined, "llama_4_scaling_beta"),
    });
  },
};
