// Qwen 3: queries and keys are normed per head.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const qwen3: Architecture = {
  name: "qwen3",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  // Rerankers: the prompt asks a yes-no question, and the score is the softmax over the logits of "yes" and "no".
  scoring: { of: "last", activation: "tanh", softmax: true },
  takesExperts: false,
  steps: (facts) =>
    preNormed(
      causalAttention(facts, { norms: { query: "attn_q_norm", key: "attn_k_norm", span: "head" } }),
      gatedFeedForward(),
    ),
};
