// Gemma: pre-norm decoder layers with the activation gelu. The embedding is scaled by sqrt(width).
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const gemma: Architecture = {
  name: "gemma",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits: (_, { width }) => ({ embeddingScale: Math.sqrt(width) }),
  // Gemma's norms multiply by 1 + weight. In GGUF files, the weights already include the 1.
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward({ activation: "gelu" })),
};
