// Gemma 3: queries and keys normed per head before the rope; five of every six layers have a sliding window and their
// own rope.

import { defaultBase, readBase, readRopeMagnitude } from "../ropes.ts";
import type { Architecture, AttentionStep } from "./architecture.ts";
import { slidingAttention } from "./bert.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";
import { readSliding } from "./sliding.ts";

const caps = { above: 0, below: 1e6 };
/**
 * Number of layers of the 27B model. Only this model divides scores by sqrt(width / heads) instead of sqrt(headLength).
 */
const layersOf27B = 62;

const headNorms: AttentionStep["norms"] = { query: "attn_q_norm", key: "attn_k_norm", span: "head" };
const feedForward = gatedFeedForward({ activation: "gelu", postNorm: "post_ffw_norm" });

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
      ...(sliding.window > 0 && { rope: { sliding: { base, magnitude: readRopeMagnitude(keys) } } }),
    };
  },
  steps: (facts) =>
    preNormed(causalAttention(facts, { norms: headNorms, postNorm: "post_attention_norm" }), feedForward),
};

/** EmbeddingGemma: Gemma 3 with bidirectional attention. It may have two dense layers after the pooling. */
export const gemmaEmbedding: Architecture = {
  ...gemma3,
  name: "gemma-embedding",
  isEncoder: true,
  encoder: {
    hasPositions: false,
    hasEmbeddingNorm: false,
    outputNorm: "output_norm",
    needsNoCausalKey: true,
    takesDenseLayers: true,
  },
  steps: (facts) =>
    preNormed(slidingAttention(facts, { norms: headNorms, postNorm: "post_attention_norm" }), feedForward),
};
