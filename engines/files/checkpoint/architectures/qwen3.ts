// Qwen 3: Qwen 2 with norms on queries and keys.
import type { CheckpointArchitecture } from "./architecture.ts";
import { headNorms } from "./changes.ts";
import { qwen2 } from "./qwen2.ts";

export const qwen3: CheckpointArchitecture = {
  ...qwen2,
  name: "qwen3",
  classes: ["Qwen3ForCausalLM", "Qwen3Model"],
  defaults: { ...qwen2.defaults, head_dim: 128 },
  tensors: { ...qwen2.tensors, ...headNorms },
};
