// Decoder steps that most architectures share, with the tensor names of GGUF files. Each other file of this folder
// specifies how an architecture differs from these steps.
import type { AttentionStep, ExpertsStep, FeedForwardStep, LayerFacts, LayerStep } from "./architecture.ts";

/** Returns a step of causal attention, limited to the window if the layer has a sliding window. */
export function causalAttention({ layer, shape }: LayerFacts, differing: Partial<AttentionStep> = {}): AttentionStep {
  const slides = shape.slides[layer] === true;
  return {
    kind: "attention",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    fused: "attn_qkv",
    output: "attn_output",
    norms: null,
    postNorm: null,
    rope: slides && shape.ropes.length > 1 ? 1 : 0,
    behind: slides ? shape.window - 1 : Number.POSITIVE_INFINITY,
    ahead: 0,
    scale: shape.attentionScale,
    softcap: shape.attentionSoftcap,
    ...differing,
  };
}

export function gatedFeedForward(differing: Partial<FeedForwardStep> = {}): FeedForwardStep {
  return {
    kind: "feedForward",
    gate: "ffn_gate",
    up: "ffn_up",
    down: "ffn_down",
    activation: "silu",
    postNorm: null,
    ...differing,
  };
}

/** Returns a mixture-of-experts step. The number of experts is not part of the step; it is in the model's shape. */
export function routedFeedForward(differing: Partial<ExpertsStep> = {}): ExpertsStep {
  return {
    kind: "experts",
    router: "ffn_gate_inp",
    gate: "ffn_gate_exps",
    up: "ffn_up_exps",
    down: "ffn_down_exps",
    activation: "silu",
    normalised: true,
    ...differing,
  };
}

/** Returns a pre-norm layer: a norm before each of its two blocks (attention and feed-forward). */
export function preNormed(attention: AttentionStep, feedForward: LayerStep): LayerStep[] {
  return [{ kind: "norm", weight: "attn_norm" }, attention, { kind: "norm", weight: "ffn_norm" }, feedForward];
}
