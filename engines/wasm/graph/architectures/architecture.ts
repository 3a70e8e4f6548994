// Owns the nouns of a model's graph: what a layer does, as data. Each architecture is one small file beside this one that
// fills them in; graph.ts finds the tensors, compute-thread.ts runs them. Names are tensors of a layer, without the
// "blk.N." before and the ".weight" behind them; a ".bias" that a file has beside a tensor is always added.
import type { Keys } from "../keys.ts";
import type { Activation, CommonShape, Hyperparameters, OwnTraits } from "../shape.ts";

/**
 * One step of a layer. `norm` makes the input of the steps behind it; attention, feedForward and experts add their result to
 * the hidden state, times the model's residualScale. Only a feed-forward leaves the input as it was: of two blocks that run
 * side by side it comes first.
 */
export type LayerStep =
  /** input = norm(hidden); the hidden state as it is where `weight` is null. */
  | { readonly kind: "norm"; readonly weight: string | null }
  /** hidden = norm(hidden), of models that norm what was added up. */
  | { readonly kind: "settle"; readonly weight: string }
  | AttentionStep
  | FeedForwardStep
  | ExpertsStep;

/** Grouped-query attention over the KV cache. */
export interface AttentionStep {
  readonly kind: "attention";
  readonly query: string;
  readonly key: string;
  readonly value: string;
  /** One matrix with the rows of all three, where a file has that instead. */
  readonly fused: string;
  readonly output: string;
  /** Queries and keys are normed before they are rotated: each head by itself, or all heads as one row. Null: they are not. */
  readonly norms: { readonly query: string; readonly key: string; readonly span: "head" | "row" } | null;
  /** Norm of what is added to the hidden state; null = none. */
  readonly postNorm: string | null;
  /** Which of the model's ropes rotates queries and keys; null = none. */
  readonly rope: number | null;
  /** How many positions before its own, and after it, a token sees; Infinity = all. Causal attention has 0 ahead. */
  readonly behind: number;
  readonly ahead: number;
  /** What scores are multiplied with. */
  readonly scale: number;
  /** Scores become cap * tanh(score / cap); 0 = they stay. */
  readonly softcap: number;
}

/** down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x))) */
export interface FeedForwardStep {
  readonly kind: "feedForward";
  /** Null where there is none; equal to `up` where one matrix has the gate's rows and behind them those of up. */
  readonly gate: string | null;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  readonly postNorm: string | null;
}

/** A feed-forward of some experts of many: the router's softmax over all, of which each token takes the largest. */
export interface ExpertsStep {
  readonly kind: "experts";
  readonly router: string;
  /** Tensors [expert][rows][columns]. */
  readonly gate: string;
  readonly up: string;
  readonly down: string;
  readonly activation: Activation;
  /** Whether the weights of those taken are divided by their sum. */
  readonly normalised: boolean;
}

/** What a layer's steps may depend on. */
export interface LayerFacts {
  readonly layer: number;
  readonly shape: Hyperparameters;
  /** Whether the file has this tensor of the layer (its .weight). */
  has(name: string): boolean;
}

/** What an encoder has before and behind its layers, beside a norm of the embedding. */
export interface EncoderRules {
  /** A row for each position is added to the token's. */
  readonly hasPositions: boolean;
  /** What the last layer leaves is normed. */
  readonly hasOutputNorm: boolean;
}

/** What scores of a text (pooling by rank) are made of. */
export interface ScoringRules {
  /** The hidden state of its first token, of its last one, or the mean of all. */
  readonly of: "first" | "last" | "mean";
  readonly activation: "tanh" | "gelu";
  /** They become shares of one. */
  readonly softmax: boolean;
}

export interface Architecture {
  /** `general.architecture` of the files it runs. */
  readonly name: string;
  /** Which floats of a head are rotated together: neighbours, or those half the rotated ones apart. */
  readonly pairing: "neighbours" | "halves";
  /** Of all norms: by the root of the mean square, or also centred on the mean. */
  readonly norm: "rms" | "layer";
  /** Encoders turn whole texts into vectors and generate nothing: no logits, attention to both sides, no KV to go on from. */
  readonly isEncoder: boolean;
  /** Of encoders alone. */
  readonly encoder?: EncoderRules;
  /** Left out where no model scores texts. */
  readonly scoring?: ScoringRules;
  /** Whether its files may have feed-forwards of experts. */
  readonly takesExperts: boolean;
  /** What the architecture's own keys say. Throws what Keys throws. */
  readTraits?(keys: Keys, shape: CommonShape): OwnTraits;
  steps(facts: LayerFacts): readonly LayerStep[];
}
