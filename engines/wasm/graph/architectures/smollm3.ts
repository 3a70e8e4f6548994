// smollm3: Llama without a rope in every fourth layer.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";
import { llama } from "./llama.ts";

/** Every fourth layer has no rope (NoPE). The files do not store this interval; llama.cpp also assumes 4. */
const ropeInterval = 4;

export const smollm3: Architecture = {
  ...llama,
  name: "smollm3",
  takesExperts: false,
  steps(facts) {
    const hasRope = (facts.layer + 1) % ropeInterval !== 0;
    return preNormed(causalAttention(facts, hasRope ? {} : { rope: null }), gatedFeedForward());
  },
};
