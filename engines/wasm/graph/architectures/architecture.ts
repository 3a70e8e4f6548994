// Architecture description: the steps of a model's layers, as data. Each architecture is one small file in this folder;
// graph.ts finds the tensors, compute-thread.ts runs the steps. Tensor names omit the prefix "blk.N." and the suffix
// ".weight"; if a file has a ".bias" for a tensor, it is always added.
import type { Keys } from "../keys.ts";
import type { Activation, CommonShape, Hyperparameters, OwnTraits } from "../shape.ts";

/**
 * One step of a layer. `norm` computes the input of the following steps. attention, feedForward and experts add their
 * result, times the model's residualScale, to the hidden state. Only a feed-forward leaves its input unchanged: if two
 * blocks run in parallel, it comes first.
 */
export type LayerStep =
  /** input = norm(hidden); input = hidden if `weight` is null. */
  | { readonly kind: "norm"; readonly weight: string | null }
  /** hidden = norm(hidden), for models that norm the residual sum. */
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
  /** One matrix with the rows of query, key and value, used if the file has it. */
  readonly fused: string;
  readonly output: string;
  /** Norms of queries and keys before the rope: per head, or all heads as one row. Null = none. */
  readonly norms: { readonly query: string; readonly key: string; readonly span: "head" | "row" } | null;
  /** Norm of the result before it is added to the hidden state; null = none. */
  readonly postNorm: string | null;
  /** Index of the rope that rotates queries and keys; null = none. */
  readonly rope: number | null;
  /** Number of positions before and after its own that a token sees; Infinity = all. Causal attention has ahead = 0. */
  readonly behind: number;
  readonly ahead: number;
  /** Factor of the attention scores. */
  readonly scale: number;
  /** Scores become cap * tanh(score / cap); 0 = no cap. */
  readonly softcap: number;
}

/** down(activation(gate(x)) * up(x)); without a gate: down(activation(up(x))). */
export interface FeedForwardStep {
  readonly kind: "feedForward";
  /** Null if there is no gate; equal to `up` if one matrix has the gate's rows followed by those of up. */
  readonly gate: string | null;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  readonly postNorm: string | null;
}

/** Mixture of experts: a softmax router over all experts; each token uses the experts with the largest weights. */
export interface ExpertsStep {
  readonly kind: "experts";
  readonly router: string;
  /** Tensors [expert][rows][columns]. */
  readonly gate: string;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  /** Whether the weights of the chosen experts are divided by their sum. */
  readonly normalised: boolean;
}

/** Input of Architecture.steps(). */
export interface LayerFacts {
  readonly layer: number;
  readonly shape: Hyperparameters;
  /** Whether the file has this tensor of the layer (its .weight). */
  has(name: string): boolean;
}

/** Parts of an encoder before and after its layers, besides a norm of the embedding. */
export interface EncoderRules {
  /** A row for each position is added to the token's embedding. */
  readonly hasPositions: boolean;
  /** The output of the last layer is normed. */
  readonly hasOutputNorm: boolean;
}

/** Scoring of a text (pooling by rank). */
export interface ScoringRules {
  /** Input of the head: the hidden state of the first token, of the last token, or the mean of all. */
  readonly of: "first" | "last" | "mean";
  readonly activation: "tanh" | "gelu";
  /** Scores are passed through a softmax. */
  readonly softmax: boolean;
}

export interface Architecture {
  /** `general.architecture` of the files it runs. */
  readonly name: string;
  /** Which floats of a head are rotated as a pair: neighbours, or i and i + rotated / 2. */
  readonly pairing: "neighbours" | "halves";
  /** Kind of all norms: RMS norm, or layer norm. */
  readonly norm: "rms" | "layer";
  /**
   * Encoders turn whole texts into vectors and generate nothing: no logits, bidirectional attention, no KV cache kept.
   */
  readonly isEncoder: boolean;
  /** Encoders only. */
  readonly encoder?: EncoderRules;
  /** Absent if no model of the architecture scores texts. */
  readonly scoring?: ScoringRules;
  /** Whether its files may have a mixture of experts. */
  readonly takesExperts: boolean;
  /** Reads the architecture's own keys. Throws what Keys throws. */
  readTraits?(keys: Keys, shape: CommonShape): OwnTraits;
  steps(facts: LayerFacts): readonly LayerStep[];
}
