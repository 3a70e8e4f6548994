// Mistral Small 3 and Ministral 3: Llama, with a YaRN rope and tempered queries in Ministral.
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture } from "./architecture.ts";
import { llama3Tensors } from "./changes.ts";
import { addLlamaPairs, llamaTensors } from "./llama.ts";

export const mistral3: CheckpointArchitecture = {
  name: "mistral3",
  classes: ["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
  applies: (config) => config.value("model_type") !== "mistral4",
  defaults: { rms_norm_eps: 1e-5 },
  addPairs(config, pairs) {
    addLlamaPairs(config, pairs);
    if (config.value("model_type") !== "ministral3") return;
    const { main } = ropeSettings(config);
    pairs.floats({
      "rope.scaling.yarn_log_multiplier": main.numberOr(undefined, "mscale_all_dim"),
      "attention.temperature_scale": main.numberOr(undefined, "llama_4_scaling_beta"),
    });
  },
  tensors: llamaTensors,
  addTensors: llama3Tensors,
};
