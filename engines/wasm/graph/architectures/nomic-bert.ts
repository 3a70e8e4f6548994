// nomic-bert: bert with rope instead of learned positions, and a gated feed-forward. nomic-bert-moe has bert's
// feed-forward, and experts in some layers.
import type { Architecture, EncoderRules } from "./architecture.ts";
import { plainFeedForward, postNormed, wholeAttention } from "./bert.ts";
import { gatedFeedForward, routedFeedForward } from "./decoder.ts";

const rotated: EncoderRules = { hasPositions: false, hasEmbeddingNorm: true, outputNorm: null };

export const nomicBert: Architecture = {
  name: "nomic-bert",
  pairing: "halves",
  norm: "layer",
  isEncoder: true,
  encoder: rotated,
  takesExperts: false,
  steps: (facts) => postNormed(wholeAttention(facts, 0), gatedFeedForward()),
};

const longestInterval = 1000;

export const nomicBertMoe: Architecture = {
  ...nomicBert,
  name: "nomic-bert-moe",
  takesExperts: true,
  readTraits: (keys) => ({ expertInterval: keys.countOrNone("moe_every_n_layers", longestInterval) }),
  steps(facts) {
    const { expertInterval: interval } = facts.shape;
    const isRouted = interval > 0 && facts.layer % interval === 1;
    const experts = routedFeedForward({ gate: null, activation: "gelu", normalised: false });
    return postNormed(wholeAttention(facts, 0), isRouted ? experts : plainFeedForward);
  },
};

/** Jina Embeddings 3: nomic-bert whose task adapters are in separate files. */
export const jinaBertV3: Architecture = {
  ...nomicBert,
  name: "jina-bert-v3",
  steps: (facts) => postNormed(wholeAttention(facts, 0), plainFeedForward),
};
