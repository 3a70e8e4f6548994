// The llama family as named in GGUF files: llama, mistral, mixtral, smollm and others that use the name "llama".
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed, routedFeedForward } from "./decoder.ts";

export const llama: Architecture = {
  name: "llama",
  // The converter reorders the rows of query and key so that pairs are neighbours.
  pairing: "neighbours",
  norm: "rms",
  isEncoder: false,
  takesExperts: true,
  steps: (facts) => preNormed(causalAttention(facts), facts.shape.experts ? routedFeedForward() : gatedFeedForward()),
};
