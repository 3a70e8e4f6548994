// bert, the architecture of many sentence encoders: learned positions, bidirectional attention, a norm after each
// block.
import type {
  Architecture,
  AttentionStep,
  ExpertsStep,
  FeedForwardStep,
  LayerFacts,
  LayerStep,
} from "./architecture.ts";

export const bert: Architecture = {
  name: "bert",
  // The pairing has no effect, because bert has no rope.
  pairing: "halves",
  norm: "layer",
  isEncoder: true,
  encoder: { hasPositions: true, hasEmbeddingNorm: true, outputNorm: null },
  scoring: { of: "first", activation: "tanh", softmax: false },
  takesExperts: false,
  steps: (facts) => postNormed(wholeAttention(facts, null), plainFeedForward),
};

export const plainFeedForward: FeedForwardStep = {
  kind: "feedForward",
  gate: null,
  up: "ffn_up",
  down: "ffn_down",
  activation: "gelu",
  postNorm: null,
};

/** Returns a step of bidirectional attention over all tokens. */
export function wholeAttention(
  { shape }: LayerFacts,
  rope: number | null,
  differing: Partial<AttentionStep> = {},
): AttentionStep {
  return {
    kind: "attention",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    fused: "attn_qkv",
    output: "attn_output",
    norms: null,
    postNorm: null,
    rope,
    behind: Number.POSITIVE_INFINITY,
    ahead: Number.POSITIVE_INFINITY,
    scale: shape.attentionScale,
    softcap: shape.attentionSoftcap,
    ...differing,
  };
}

/**
 * Returns a step of bidirectional attention, limited to the window if the layer has a sliding window. A token attends to
 * floor(window / 2) positions before its own position, and as many after it.
 */
export function slidingAttention(facts: LayerFacts, differing: Partial<AttentionStep> = {}): AttentionStep {
  const { window, slides, ropes } = facts.shape;
  if (slides[facts.layer] !== true) return wholeAttention(facts, 0, differing);
  const side = Math.floor(window / 2);
  return wholeAttention(facts, ropes.length > 1 ? 1 : 0, { behind: side, ahead: side, ...differing });
}

/** Returns a post-norm layer: the input of each block is the hidden state, and the sum of hidden state and block result is normed. */
export function postNormed(attention: AttentionStep, feedForward: FeedForwardStep | ExpertsStep): LayerStep[] {
  return [
    { kind: "norm", weight: null },
    attention,
    { kind: "hiddenNorm", weight: "attn_output_norm" },
    { kind: "norm", weight: null },
    feedForward,
    { kind: "hiddenNorm", weight: "layer_output_norm" },
  ];
}
