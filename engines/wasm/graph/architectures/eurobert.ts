// eurobert and neo-bert: encoders with the layers of llama, but bidirectional attention.
import type { Architecture } from "./architecture.ts";
import { wholeAttention } from "./bert.ts";
import { gatedFeedForward, preNormed } from "./decoder.ts";

export const euroBert: Architecture = {
  name: "eurobert",
  pairing: "halves",
  norm: "rms",
  isEncoder: true,
  encoder: { hasPositions: false, hasEmbeddingNorm: false, outputNorm: "output_norm" },
  takesExperts: false,
  steps: (facts) => preNormed(wholeAttention(facts, 0), gatedFeedForward()),
};

export const neoBert: Architecture = {
  ...euroBert,
  name: "neo-bert",
  pairing: "neighbours",
  encoder: { hasPositions: false, hasEmbeddingNorm: false, outputNorm: "enc.output_norm" },
  steps: (facts) => preNormed(wholeAttention(facts, 0), gatedFeedForward({ gate: "ffn_up" })),
};
