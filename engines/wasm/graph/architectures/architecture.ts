// Architecture description: the steps of a model's layers, as data. Each architecture is one small file in this folder.
// graph.ts finds the tensors that the steps name; compute-thread.ts runs the steps. Tensor names omit the prefix
// "blk.N." and the suffix ".weight". If the file has a ".bias" for a tensor, it is always added.
import type { Keys } from "../keys.ts";
import type { Activation, CommonShape, Hyperparameters, OwnTraits } from "../shape.ts";

/**
 * One step of a layer. A norm step computes the input of the steps after it. An attention, feedForward or experts step
 * multiplies its result by the model's residualScale and adds it to the hidden state. An attention step overwrites its
 * input; feedForward and experts steps do not. Therefore, if two blocks use the same input, the attention step comes
 * last.
 */
export type LayerStep =
  /** input = norm(hidden); input = hidden if `weight` is null. */
  | { readonly kind: "norm"; readonly weight: string | null }
  /** hidden = norm(hidden). Used by models that norm the sum of hidden state and block result. */
  | { readonly kind: "hiddenNorm"; readonly weight: string }
  | AttentionStep
  | FeedForwardStep
  | ExpertsStep;

/** Grouped-query attention over the KV cache. */
export interface AttentionStep {
  readonly kind: "attention";
  readonly query: string;
  readonly key: string;
  readonly value: string;
  /**
   * Name of one matrix with the rows of query, key and value. If the file has this matrix, it is used in place of the
   * three separate matrices.
   */
  readonly fused: string;
  readonly output: string;
  /**
   * Norms of queries and keys before the rope. "head": each head separately; "row": all heads as one row. Null = none.
   */
  readonly norms: { readonly query: string; readonly key: string; readonly span: "head" | "row" } | null;
  /** Norm of the result before it is added to the hidden state; null = none. */
  readonly postNorm: string | null;
  /** Index of the rope that rotates queries and keys; null = none. */
  readonly rope: number | null;
  /**
   * Number of positions that a token sees before and after its own position; Infinity = all. In causal attention
   * `ahead` is 0.
   */
  readonly behind: number;
  readonly ahead: number;
  /** Factor of the attention scores. */
  readonly scale: number;
  /** Scores become cap * tanh(score / cap); 0 = no cap. */
  readonly softcap: number;
}

/** Dense feed-forward: down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x))). */
export interface FeedForwardStep {
  readonly kind: "feedForward";
  /**
   * Name of the gate's matrix; null = no gate. If the name equals `up`, one matrix has the gate's rows followed by the
   * rows of up.
   */
  readonly gate: string | null;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  readonly postNorm: string | null;
}

/**
 * Mixture of experts. The router computes a softmax over all experts; each token uses the experts with the largest
 * weights. An expert computes down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x))).
 */
export interface ExpertsStep {
  readonly kind: "experts";
  readonly router: string;
  /** Names of tensors with dimensions [expert][rows][columns]; null = no gate. */
  readonly gate: string | null;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  /** Whether a token's weights are divided by their sum over the chosen experts. */
  readonly normalised: boolean;
}

/** Input of Architecture.steps(). */
export interface LayerFacts {
  readonly layer: number;
  readonly shape: Hyperparameters;
  /** Whether the file has this layer's tensor `name`.weight. */
  has(name: string): boolean;
}

/** Parts of an encoder before and after its layers. */
export interface EncoderRules {
  /** Whether a learned vector for the token's position is added to each embedding. */
  readonly hasPositions: boolean;
  /** Whether the sum of embedding, position and token type is normed. */
  readonly hasEmbeddingNorm: boolean;
  /** Name of the norm of the last layer's output; null = none. */
  readonly outputNorm: string | null;
  /** Whether attention is bidirectional even if the file does not say so. Otherwise the file must say so. */
  readonly needsNoCausalKey?: boolean;
  /** Whether the model may have two dense layers after the pooling. */
  readonly takesDenseLayers?: boolean;
}

/** Scoring rules: how a reranker computes the score of a text (pooling kind rank). */
export interface ScoringRules {
  /** Input of the scoring head: the hidden state of the first token, of the last token, or the mean of all. */
  readonly of: "first" | "last" | "mean";
  readonly activation: "tanh" | "gelu";
  /** Whether the scores are passed through a softmax. */
  readonly softmax: boolean;
}

export interface Architecture {
  /** Value of `general.architecture` in the files of this architecture. */
  readonly name: string;
  /**
   * Which floats of a head the rope rotates as a pair. "neighbours": floats 2i and 2i + 1. "halves": floats i and i +
   * rotated / 2.
   */
  readonly pairing: "neighbours" | "halves";
  /** Kind of all norms of the model: RMS norm or layer norm. */
  readonly norm: "rms" | "layer";
  /**
   * Whether the model is an encoder. Encoders turn whole texts into vectors and generate nothing: they have no logits,
   * their attention is bidirectional, and their KV cache is not kept.
   */
  readonly isEncoder: boolean;
  /** Parts that encoders have; absent for other architectures. */
  readonly encoder?: EncoderRules;
  /** How rerankers of this architecture score texts; absent if the architecture has no rerankers. */
  readonly scoring?: ScoringRules;
  /** Whether models of this architecture may have a mixture of experts. */
  readonly takesExperts: boolean;
  /** Reads the keys that only this architecture has. Throws the errors of Keys. */
  readTraits?(keys: Keys, shape: CommonShape): OwnTraits;
  steps(facts: LayerFacts): readonly LayerStep[];
}
