// Qwen 2 and 2.5.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, outerTensors, preNorms } from "./changes.ts";

export const qwen2: CheckpointArchitecture = {
  name: "qwen2",
  classes: ["Qwen2ForCausalLM", "Qwen2Model"],
  defaults: { rms_norm_eps: 1e-6 },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...feedForward },
  pools: true,
};
