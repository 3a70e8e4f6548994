// The llama family as GGUF files spell it: llama, mistral, smollm and whatever else calls itself "llama".
import type { Architecture } from "./architecture.ts";

export const llama: Architecture = {
  name: "llama",
  // The converter reorders the rows of query and key so that pairs are neighbours.
  pairing: "neighbours",
  layer: [
    { kind: "norm", weight: "attn_norm" },
    { kind: "attention", query: "attn_q", key: "attn_k", value: "attn_v", output: "attn_output" },
    { kind: "norm", weight: "ffn_norm" },
    { kind: "feedForward", gate: "ffn_gate", up: "ffn_up", down: "ffn_down" },
  ],
};
