// Shape: the sizes and traits of a model that its graph is built from. Data only; hyperparameters.ts reads it from a file.
import type { Ropes, SlidingRope } from "./ropes.ts";

/** "silu", "gelu" by its tanh approximation. */
export type Activation = "silu" | "gelu";

/** What every architecture has. */
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
  /** Most tokens the model was trained for. */
  readonly trainedContext: number;
  readonly vocabSize: number;
  /** Feed-forwards of which each token takes `used`, and the length of each; null where there are none. */
  readonly experts: { readonly count: number; readonly used: number; readonly feedForward: number } | null;
}

/** What only some architectures have. */
export interface Traits {
  /** The embedding, what a layer adds to the hidden state, and the logits are multiplied with these. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Logits become cap * tanh(logit / cap); 0 = they stay. */
  readonly logitSoftcap: number;
  /** What attention's scores are multiplied with. */
  readonly attentionScale: number;
  /** Scores become cap * tanh(score / cap); 0 = they stay. */
  readonly attentionSoftcap: number;
  /** Positions that a token sees in a layer that slides, its own included; 0 = no layer does. */
  readonly window: number;
  /** By layer; empty where none does. */
  readonly slides: readonly boolean[];
  /** Of feed-forwards, where an architecture's files say which. */
  readonly activation: Activation;
}

/** Traits as an architecture reads them. */
export interface OwnTraits extends Partial<Traits> {
  /** In place of experts as long as a feed-forward. */
  readonly experts?: CommonShape["experts"];
  /** Where sliding layers have a rope of their own, which is number 1. */
  readonly slidingRope?: SlidingRope;
}

export interface Hyperparameters extends CommonShape, Traits, Ropes {}
