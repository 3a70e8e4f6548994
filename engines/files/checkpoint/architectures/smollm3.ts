// SmolLM 3: Llama, but every fourth layer has no RoPE.
import type { CheckpointArchitecture } from "./architecture.ts";
import { llama3Tensors } from "./changes.ts";
import { addLlamaPairs, llamaTensors } from "./llama.ts";

export const smollm3: CheckpointArchitecture = {
  name: "smollm3",
  classes: ["SmolLM3ForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, no_rope_layer_interval: 4, use_sliding_window: false },
  addPairs(config, pairs) {
    config.mustBe("no_rope_layer_interval", 4);
    config.mustBe("use_sliding_window", false);
    addLlamaPairs(config, pairs);
  },
  tensors: llamaTensors,
  addTensors: llama3Tensors,
};
