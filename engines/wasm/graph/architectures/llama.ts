// The llama family as GGUF files spell it: llama, mistral, mixtral, smollm and whatever else calls itself "llama".
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
