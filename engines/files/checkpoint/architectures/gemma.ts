// Gemma: norms store the factor minus one; the output matrix is the embedding.
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, feedForward, plusOne } from "./changes.ts";

export const gemmaTensors: TensorTable = {
  embed_tokens: "token_embd",
  norm: { to: "output_norm", change: plusOne },
  // A copy of the embedding, which some tools add.
  lm_head: null,
  "layers.{l}.input_layernorm": { to: "blk.{l}.attn_norm", change: plusOne },
  ...attention,
  ...feedForward,
};

export const gemma: CheckpointArchitecture = {
  name: "gemma",
  classes: ["GemmaForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, head_dim: 256, max_position_embeddings: 8192, num_key_value_heads: 16 },
  tensors: {
    ...gemmaTensors,
    "layers.{l}.post_attention_layernorm": { to: "blk.{l}.ffn_norm", change: plusOne },
  },
};
