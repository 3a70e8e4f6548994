// Gemma: an embedding scaled by sqrt(width), and gelu.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const gemma: Architecture = {
  name: "gemma",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits: (_, { width }) => ({ embeddingScale: Math.sqrt(width) }),
  // In GGUF files, the norm weights already include the + 1 that is not part of the published weights.
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward({ activation: "gelu" })),
};
