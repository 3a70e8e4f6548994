// StableLM: layer norms, and a rope that rotates only a part of each head. If a layer has no feed-forward norm
// (StableLM 2 12B), attention and feed-forward run in parallel on the same input.
import type { Architecture, AttentionStep } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

const headNorms: AttentionStep["norms"] = { query: "attn_q_norm", key: "attn_k_norm", span: "head" };

export const stablelm: Architecture = {
  name: "stablelm",
  pairing: "halves",
  norm: "layer",
  isEncoder: false,
  takesExperts: false,
  steps(facts) {
    const attention = causalAttention(facts, { norms: facts.has("attn_q_norm") ? headNorms : null });
    if (facts.has("ffn_norm")) return preNormed(attention, gatedFeedForward());
    return [{ kind: "norm", weight: "attn_norm" }, gatedFeedForward(), attention];
  },
};
