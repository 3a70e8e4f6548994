// nomic-bert: bert with rope instead of learned positions, and a gated feed-forward.
import type { Architecture } from "./architecture.ts";
import { postNormed, wholeAttention } from "./bert.ts";
import { gatedFeedForward } from "./decoder.ts";

export const nomicBert: Architecture = {
  name: "nomic-bert",
  pairing: "halves",
  norm: "layer",
  isEncoder: true,
  encoder: { hasPositions: false, hasOutputNorm: false },
  takesExperts: false,
  steps: (facts) => postNormed(wholeAttention(facts, 0), gatedFeedForward()),
};
