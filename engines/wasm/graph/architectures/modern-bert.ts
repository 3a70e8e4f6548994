// modern-bert: a norm before each block, and gate and up in one matrix. Some layers have full attention; all other
// layers have a sliding window.

import type { Keys } from "../keys.ts";
import { maxContext, readBase, readRopeMagnitude } from "../ropes.ts";
import type { Activation, CommonShape, OwnTraits } from "../shape.ts";
import type { Architecture } from "./architecture.ts";
import { slidingAttention } from "./bert.ts";
import { gatedFeedForward } from "./decoder.ts";

/**
 * Default distance between layers with full attention, used if the file has no pattern. Every third layer has full
 * attention.
 */
const defaultPattern = 3;
const defaultSlidingBase = 10_000;
const activations: ReadonlyMap<unknown, Activation> = new Map([
  [undefined, "gelu"],
  ["gelu", "gelu"],
  ["geglu", "gelu"],
  ["silu", "silu"],
  ["swish", "silu"],
  ["swiglu", "silu"],
]);

export const modernBert: Architecture = {
  name: "modern-bert",
  pairing: "halves",
  norm: "layer",
  isEncoder: true,
  encoder: { hasPositions: false, hasEmbeddingNorm: true, outputNorm: "output_norm" },
  scoring: { of: "mean", activation: "gelu", softmax: false },
  takesExperts: false,
  readTraits: (keys, shape) => ({ ...readWindow(keys, shape), activation: readActivation(keys) }),
  steps: (facts) => [
    // The first layer usually has no norm, because its input, the embedding, is already normed.
    { kind: "norm", weight: facts.layer > 0 || facts.has("attn_norm") ? "attn_norm" : null },
    slidingAttention(facts),
    { kind: "norm", weight: "ffn_norm" },
    gatedFeedForward({ gate: "ffn_up", activation: facts.shape.activation }),
  ],
};

function readWindow(keys: Keys, { layers }: CommonShape): OwnTraits {
  const window = keys.countOrNone("attention.sliding_window", maxContext);
  if (window === 0) return {};
  const base = readBase(keys, "rope.freq_base_swa", defaultSlidingBase);
  return { window, slides: readPattern(keys, layers), rope: { sliding: { base, magnitude: readRopeMagnitude(keys) } } };
}

function readPattern(keys: Keys, layers: number): readonly boolean[] {
  const key = "attention.sliding_window_pattern";
  const listed = keys.truths(key, layers);
  if (listed !== null) return listed;
  // A pattern of 0 means that no layer has full attention.
  const pattern = keys.has(key) ? keys.countOrNone(key, maxContext) : defaultPattern;
  return Array.from({ length: layers }, (_, layer) => pattern === 0 || layer % pattern !== 0);
}

function readActivation(keys: Keys): Activation {
  const key = "hidden_activation";
  const activation = activations.get(keys.value(key));
  if (activation !== undefined) return activation;
  throw keys.unsupported(key, "gelu or silu");
}
