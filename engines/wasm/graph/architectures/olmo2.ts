// OLMo 2 and 3: norms after the blocks instead of before. Queries and keys are normed as whole rows. OLMo 3 also has
// sliding-window layers; only the rope of its other layers is scaled.
import { defaultBase, readBase } from "../ropes.ts";
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward } from "./decoder.ts";
import { readSliding } from "./sliding.ts";

export const olmo2: Architecture = {
  name: "olmo2",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits(keys, shape) {
    const sliding = readSliding(keys, shape, 4);
    const base = readBase(keys, "rope.freq_base", defaultBase);
    return { ...sliding, ...(sliding.window > 0 && { rope: { sliding: { base, magnitude: 1 } } }) };
  },
  steps: (facts) => [
    { kind: "norm", weight: null },
    causalAttention(facts, {
      norms: { query: "attn_q_norm", key: "attn_k_norm", span: "row" },
      postNorm: "post_attention_norm",
    }),
    { kind: "norm", weight: null },
    gatedFeedForward({ postNorm: "post_ffw_norm" }),
  ],
};
