// granite and granitemoe: Llama with scales for the embedding, the scores, the residuals and the logits.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed, routedFeedForward } from "./decoder.ts";

const scales = { above: 0, below: 1e6 };

export const granite: Architecture = {
  name: "granite",
  pairing: "neighbours",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits(keys, { headLength }) {
    // Rejects unusual values of the keys rope.scaling.finetuned and deepstack_mapping, because no model file with such
    // values was available for tests.
    keys.mustBe("rope.scaling.finetuned", true);
    if (keys.has("deepstack_mapping")) throw keys.unsupported("deepstack_mapping", "models without it");
    return {
      embeddingScale: keys.numberOr("embedding_scale", scales, 1),
      residualScale: keys.numberOr("residual_scale", scales, 1),
      attentionScale: keys.numberOr("attention.scale", scales, 1 / Math.sqrt(headLength)),
      // The file stores the number by which logits are divided.
      logitScale: 1 / keys.number("logit_scale", scales),
    };
  },
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward()),
};

export const graniteMoe: Architecture = {
  ...granite,
  name: "granitemoe",
  takesExperts: true,
  steps: (facts) => preNormed(causalAttention(facts), facts.shape.experts ? routedFeedForward() : gatedFeedForward()),
};
