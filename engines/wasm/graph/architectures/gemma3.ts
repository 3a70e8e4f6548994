// Gemma 3: queries and keys normed per head before the rope; five of every six layers have a sliding window and their
// own rope.

import { defaultBase, readBase, readRopeMagnitude } from "../ropes.ts";
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";
import { readSliding } from "./sliding.ts";

const caps = { above: 0, below: 1e6 };
/**
 * Number of layers of the 27B model. Only this model divides scores by sqrt(width / heads) instead of sqrt(headLength).
 */
const layersOf27B = 62;

export const gemma3: Architecture = {
  name: "gemma3",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits(keys, shape) {
    const { width, heads, headLength, layers } = shape;
    const scored = layers === layersOf27B ? Math.trunc(width / heads) : headLength;
    const sliding = readSliding(keys, shape, 6);
    const base = readBase(keys, "rope.freq_base_swa", defaultBase);
    return {
      embeddingScale: Math.sqrt(width),
      attentionScale: 1 / Math.sqrt(scored),
      logitSoftcap: keys.numberOr("final_logit_softcapping", caps, 0),
      ...sliding,
      ...(sliding.window > 0 && { slidingRope: { base, magnitude: readRopeMagnitude(keys) } }),
    };
  },
  steps: (facts) =>
    preNormed(
      causalAttention(facts, {
        norms: { query: "attn_q_norm", key: "attn_k_norm", span: "head" },
        postNorm: "post_attention_norm",
      }),
      gatedFeedForward({ activation: "gelu", postNorm: "post_ffw_norm" }),
    ),
};
