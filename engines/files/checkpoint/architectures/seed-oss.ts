// Seed-OSS: Qwen 2, but the norm of the feed-forward has another name.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, outerTensors } from "./changes.ts";

export const seedOss: CheckpointArchitecture = {
  name: "seed_oss",
  classes: ["SeedOssForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, head_dim: 128 },
  tensors: {
    ...outerTensors,
    ...attention,
    ...feedForward,
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
  },
};
