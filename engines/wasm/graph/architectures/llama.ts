// llama: all models whose GGUF file names this architecture, such as llama, mistral, mixtral and smollm.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed, routedFeedForward } from "./decoder.ts";

export const llama: Architecture = {
  name: "llama",
  // The GGUF converter reorders the rows of query and key so that the two floats of a rope pair are neighbours.
  pairing: "neighbours",
  norm: "rms",
  isEncoder: false,
  takesExperts: true,
  steps: (facts) => preNormed(causalAttention(facts), facts.shape.experts ? routedFeedForward() : gatedFeedForward()),
};
