// Phi 3 and 4: one matrix for queries, keys and values, and one for gate and up. If the file has a sliding window, it
// is ignored, as in llama.cpp, because files state neither which layers have it nor a reliable length.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";

export const phi3: Architecture = {
  name: "phi3",
  pairing: "halves",
  norm: "rms",
  isEncoder: false,
  takesExperts: false,
  steps: (facts) => preNormed(causalAttention(facts), gatedFeedForward({ gate: "ffn_up" })),
};
