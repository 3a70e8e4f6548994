// Qwen 3 with experts: queries and keys normed per head before the rope, and a mixture of experts.
import type { Architecture } from "./architecture.ts";
import { causalAttention, preNormed, routedFeedForward } from "./decoder.ts";

const longestFeedForward = 1024 * 1024;

export const qwen3moe: Architecture = {
  name: "qwen3moe",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: true,
  readTraits(keys, { experts, feedForward }) {
    if (experts === null) throw keys.invalid("expert_count", "a whole number above 0");
    const length = keys.countOrNone("expert_feed_forward_length", longestFeedForward);
    return { experts: { ...experts, feedForward: length || Math.trunc(feedForward / experts.used) } };
  },
  steps: (facts) =>
    preNormed(
      causalAttention(facts, { norms: { query: "attn_q_norm", key: "attn_k_norm", span: "head" } }),
      routedFeedForward(),
    ),
};
