// smollm3: Llama without a rope in every fourth layer.
import type { Architecture } from "./architecture.ts";
import { causalAttention, gatedFeedForward, preNormed } from "./decoder.ts";
import { llama } from "./llama.ts";

/** The last of so many layers has no rope. llama.cpp has the same number for all files. */
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
