// StarCoder 2: layer norms and biases everywhere.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, outerTensors, preNorms } from "./changes.ts";

export const starcoder2: CheckpointArchitecture = {
  name: "starcoder2",
  classes: ["Starcoder2ForCausalLM"],
  defaults: { norm_epsilon: 1e-5 },
  tensors: {
    ...outerTensors,
    ...preNorms,
    ...attention,
    "layers.{l}.mlp.c_fc": "blk.{l}.ffn_up",
    "layers.{l}.mlp.c_proj": "blk.{l}.ffn_down",
  },
};
