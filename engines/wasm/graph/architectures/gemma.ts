// Gemma: an embedding as long as the vectors that are normed later, and gelu.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const gemma: Architecture = {
  name: "gemma",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  readTraits: (_, { width }) => ({ embeddingScale: Math.sqrt(width) }),
  // The file's norms have the 1 added already that the published weights leave out.
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward({ activation: "gelu" })),
};
