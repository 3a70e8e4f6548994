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
  // The file's norm weights already include the 1 that the published weights omit.
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward({ activation: "gelu" })),
};
