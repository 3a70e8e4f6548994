// Gemma 2: soft-capped scores and logits, a norm after each block, and a sliding window in every other layer.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";
import { readSliding } from "./sliding.ts";

const defaultWindow = 4096;
const caps = { above: 0, below: 1e6 };
/**
 * Number of layers of the 27B model. Only this model divides scores by sqrt(width / heads) instead of sqrt(headLength).
 */
const layersOf27B = 46;

export const gemma2: Architecture = {
  name: "gemma2",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits(keys, shape) {
    const { width, heads, headLength, layers } = shape;
    if (keys.has("rope.freq_base_swa")) throw keys.unsupported("rope.freq_base_swa", "one base for all layers");
    const scored = layers === layersOf27B ? Math.trunc(width / heads) : headLength;
    return {
      embeddingScale: Math.sqrt(width),
      attentionScale: 1 / Math.sqrt(scored),
      attentionSoftcap: keys.number("attn_logit_softcapping", caps, 50),
      logitSoftcap: keys.number("final_logit_softcapping", caps, 30),
      ...readSliding(keys, shape, 2, defaultWindow),
    };
  },
  steps: (facts) =>
    preNormed(
      causalAttention(facts, { postNorm: "post_attention_norm" }),
      gatedFeedForward({ activation: "gelu", postNorm: "post_ffw_norm" }),
    ),
};
