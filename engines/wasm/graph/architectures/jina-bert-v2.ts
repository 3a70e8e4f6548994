// jina-bert-v2: bert with a position bias (ALiBi) instead of learned positions, and gate and up in one matrix.
import type { Architecture, AttentionStep } from "./architecture.ts";
import { postNormed, wholeAttention } from "./bert.ts";
import { gatedFeedForward } from "./decoder.ts";

/** Value of Hyperparameters.alibi (position bias), which files do not contain. The smallest slope of a head is 2^-8. */
const alibi = 8;
const rowNorms: AttentionStep["norms"] = { query: "attn_q_norm", key: "attn_k_norm", span: "row" };

export const jinaBertV2: Architecture = {
  name: "jina-bert-v2",
  // The pairing has no effect, because there is no rope.
  pairing: "halves",
  norm: "layer",
  isEncoder: true,
  encoder: { hasPositions: false, hasEmbeddingNorm: true, outputNorm: null },
  takesExperts: false,
  readTraits: () => ({ alibi }),
  steps: (facts) =>
    postNormed(
      wholeAttention(facts, null, { norms: facts.has("attn_q_norm") ? rowNorms : null }),
      gatedFeedForward({ gate: facts.has("ffn_gate") ? "ffn_gate" : "ffn_up", activation: "gelu" }),
    ),
};
