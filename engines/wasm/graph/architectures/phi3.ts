// Phi 3 and 4: one matrix for queries, keys and values, and one for gate and up. A sliding window in the file is
// ignored, as in llama.cpp. Reason: files state neither the layers with a window nor a reliable window length.
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
