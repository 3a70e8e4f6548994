// olmoe: norms before the blocks, queries and keys normed as whole rows, and a mixture of experts whose weights are not divided by
// their sum.
import type { Architecture } from "./architecture.ts";
import { causalAttention, preNormed, routedFeedForward } from "./decoder.ts";

export const olmoe: Architecture = {
  name: "olmoe",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: true,
  readTraits(keys, { experts }) {
    if (experts === null) throw keys.invalid("expert_count", "a whole number above 0");
    keys.mustBe("expert_weights_scale", 1);
    return {};
  },
  steps: (facts) =>
    preNormed(
      causalAttention(facts, { norms: { query: "attn_q_norm", key: "attn_k_norm", span: "row" } }),
      routedFeedForward({ normalised: false }),
    ),
};
