// Shape: the sizes and traits of a model from which its graph is built. Data only; hyperparameters.ts reads it from a
// file.
import type { Ropes, SlidingRope } from "./ropes.ts";

/** Here "gelu" means its tanh approximation. */
export type Activation = "silu" | "gelu";

/** Fields of every architecture. */
export interface CommonShape {
  readonly architecture: string;
  readonly layers: number;
  /** Floats of a token's hidden state. */
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  /** Divides `heads`. */
  readonly kvHeads: number;
  readonly headLength: number;
  /** Floats of a head that are rotated; even. */
  readonly rotated: number;
  readonly epsilon: number;
  /** Context length of the training, in tokens. */
  readonly trainedContext: number;
  readonly vocabSize: number;
  /** Mixture of experts: number of experts, experts used per token, and inner length of each; null = none. */
  readonly experts: { readonly count: number; readonly used: number; readonly feedForward: number } | null;
}

/** Fields of some architectures. */
export interface Traits {
  /** Factors of the embedding, of each block's contribution to the hidden state, and of the logits. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Logits become cap * tanh(logit / cap); 0 = no cap. */
  readonly logitSoftcap: number;
  /** Factor of the attention scores. */
  readonly attentionScale: number;
  /** Scores become cap * tanh(score / cap); 0 = no cap. */
  readonly attentionSoftcap: number;
  /** Positions that a token sees in a sliding-window layer, including its own; 0 = no layer slides. */
  readonly window: number;
  /** By layer: whether it has a sliding window; empty if none does. */
  readonly slides: readonly boolean[];
  /** Activation of the feed-forwards, if the architecture's files specify it. */
  readonly activation: Activation;
}

/** Traits as an architecture reads them. */
export interface OwnTraits extends Partial<Traits> {
  /** Overrides experts that are as long as a feed-forward. */
  readonly experts?: CommonShape["experts"];
  /** Rope of the sliding layers; it becomes rope number 1. */
  readonly slidingRope?: SlidingRope;
}

export interface Hyperparameters extends CommonShape, Traits, Ropes {}
