// Qwen 2 and 2.5: like llama, but with biases in the attention. The graph always adds the biases that a file has.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const qwen2: Architecture = {
  name: "qwen2",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward()),
};
