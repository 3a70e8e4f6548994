// Owns how much KV cache a model gets: the contract's budget turned into tokens per sequence. Pure arithmetic.
import { ServerError } from "../runtime/errors.ts";
import type { ModelSpec } from "./engine.ts";

export interface KvShape {
  readonly layers: number;
  /** Elements of K plus V that one token takes in one layer. */
  readonly elementsPerLayer: number;
  readonly bytesPerElement: number;
  readonly trainedContext: number;
}

/** Fraction of the free memory a model takes for its KV cache when no budget is given. */
const defaultShare = 0.25;
/** llama.cpp allocates each sequence's context in steps of this many tokens. */
const contextStep = 256;

/** Bytes of KV cache a token takes, all layers together. */
export function kvBytesPerToken(shape: KvShape): number {
  return shape.layers * shape.elementsPerLayer * shape.bytesPerElement;
}

/** Tokens of KV cache llama.cpp allocates for a sequence that may hold `tokens`. */
export function allocatedTokens(tokens: number): number {
  return Math.ceil(tokens / contextStep) * contextStep;
}

/**
 * Tokens each of `spec.maxSequences` sequences may hold: the lesser of the model's (or configured) length and an equal
 * share of the budget. Throws `config_invalid` when not even one step of context fits.
 */
export function tokensPerSequence(spec: ModelSpec, shape: KvShape, freeBytes: number): number {
  const bytesPerToken = kvBytesPerToken(shape);
  const budget = spec.kvBudget ?? { bytes: freeBytes * defaultShare };
  const budgetTokens = "tokens" in budget ? budget.tokens : Math.floor(budget.bytes / bytesPerToken);
  const share = Math.floor(budgetTokens / spec.maxSequences);
  const wanted = spec.maxModelLength ?? shape.trainedContext;
  const granted = Math.min(wanted, Math.floor(share / contextStep) * contextStep);
  if (granted > 0) return granted;
  throw new ServerError(
    "config_invalid",
    `the KV cache budget of ${budgetTokens} tokens leaves ${share} for each of ${spec.maxSequences} sequences; ` +
      `at least ${contextStep} are needed (${bytesPerToken} bytes a token): raise kv_cache or lower max_seqs`,
    { param: "kv_cache" },
  );
}
