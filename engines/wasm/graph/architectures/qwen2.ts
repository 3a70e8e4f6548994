// Qwen 2 and 2.5: llama with biases, which are always used if a file has them.
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
