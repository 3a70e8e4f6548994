// Shape of a model: the sizes and traits from which its graph is built. Data only; hyperparameters.ts reads it from a
// file.
import type { Ropes, RopeTraits } from "./ropes.ts";

/** Activation of a feed-forward. "gelu" means the tanh approximation of GELU, "quickGelu" x * sigmoid(1.702 x). */
export type Activation = "silu" | "gelu" | "quickGelu";

/** Sizes that every architecture has. */
export interface CommonShape {
  readonly architecture: string;
  readonly layers: number;
  /** Number of floats in a token's hidden state. */
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  /** Number of key/value heads; `heads` is a multiple of it. */
  readonly kvHeads: number;
  readonly headLength: number;
  /** Number of floats of a head that the rope rotates; even. */
  readonly rotated: number;
  readonly epsilon: number;
  /** Context length that the model was trained with, in tokens. */
  readonly trainedContext: number;
  readonly vocabSize: number;
  /**
   * Mixture of experts: number of experts, number of experts used per token, and inner length of each expert. Null =
   * none.
   */
  readonly experts: { readonly count: number; readonly used: number; readonly feedForward: number } | null;
}

/** Scales, caps and windows that only some architectures have. */
export interface Traits {
  /** Factors of the embedding, of each block's result before it is added to the hidden state, and of the logits. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Logits become cap * tanh(logit / cap); 0 = no cap. */
  readonly logitSoftcap: number;
  /** Factor of the attention scores. */
  readonly attentionScale: number;
  /** Scores become cap * tanh(score / cap); 0 = no cap. */
  readonly attentionSoftcap: number;
  /**
   * Number of positions that a token sees in a sliding-window layer, including its own; 0 = no layer has a sliding
   * window.
   */
  readonly window: number;
  /** For each layer: whether it has a sliding window. Empty if no layer has one. */
  readonly slides: readonly boolean[];
  /**
   * Exponent of the smallest slope of the position bias (ALiBi): the slopes of the heads go down to 2^-alibi. A score
   * is lowered by the distance of the two positions times the slope of its head. 0 = no bias.
   */
  readonly alibi: number;
  /**
   * Interval between mixture-of-experts layers in nomic-bert-moe, counted in layers; 0 = no layer is a mixture of
   * experts. Unused in other architectures.
   */
  readonly expertInterval: number;
  /**
   * Number of further vectors in the embedding of an image's token (DeepStack): vector i is added to the hidden state after layer i.
   * 0 = none.
   */
  readonly stackedInputs: number;
  /**
   * Activation of the feed-forwards, for architectures whose files specify it. Other architectures set it in their
   * steps.
   */
  readonly activation: Activation;
}

/** Traits that an architecture reads from its own keys. Missing traits get default values. */
export interface OwnTraits extends Partial<Traits> {
  /**
   * Experts, if the architecture computes their inner length itself. By default, their inner length is that of the
   * dense feed-forward.
   */
  readonly experts?: CommonShape["experts"];
  readonly rope?: RopeTraits;
}

export interface Hyperparameters extends CommonShape, Traits, Ropes {}

/** Returns the number of floats of an embedding of images or audio. */
export function inputFloats({ width, stackedInputs }: Pick<Hyperparameters, "width" | "stackedInputs">): number {
  return width * (1 + stackedInputs);
}
