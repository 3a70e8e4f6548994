// Interface of constrained decoding: compiles grammars and computes the mask of allowed tokens for each sequence.
// Grammars are compiled and matched on grammar threads, while the forward pass runs on the model's thread.
import type { GrammarSource } from "../../grammar-source.ts";

export interface CompiledGrammar {
  /** Opens a matcher. Throws `queue_full` if too many are open, `model_failed` if no thread can be started. */
  open(): Matcher;
}

/** The tokens that may come next. The arrays are views and valid until the next accept(). */
export interface Allowed {
  /** Tokens that must come next. The matcher has already accepted them. */
  readonly forced: Int32Array;
  /**
   * Mask of the tokens that may come after the forced tokens: one bit per token; token 0 is the lowest bit of word 0.
   */
  readonly mask: Int32Array;
}

/** Tracks the tokens of one sequence and computes which tokens its grammar allows next. */
export interface Matcher {
  /** The request field that contains the grammar. */
  readonly param: string | undefined;
  /**
   * Whether the token mask after the last accept() is ready, or will probably be ready before the end of a forward
   * pass. If not, the sequence is left out of the step.
   */
  readonly isReady: boolean;
  /**
   * Waits for the token mask, for at most `limitMs`. Returns whether the mask is ready. After a result of false,
   * isReady stays false until the mask is ready.
   */
  wait(limitMs: number): boolean;
  /**
   * Returns the allowed tokens. Call it only after wait() has returned true. Throws `model_failed` if the grammar
   * engine has failed, `unsupported` if the grammar takes too much time.
   */
  allowed(): Allowed;
  /**
   * Passes the next token of the sequence to the matcher, which then computes the next mask. Call it only
   * when the previous mask is ready.
   */
  accept(token: number): void;
  close(): void;
}

/** The request that asks for a grammar. */
export interface GrammarAsker {
  readonly client: string;
  /**
   * Aborted when the request does not need the grammar any more. The compilation then stops, unless
   * another request needs the grammar.
   */
  readonly signal: AbortSignal;
}

export interface GrammarHost {
  /**
   * Compiles a grammar, or returns it from the cache. Rejects with
   * - `invalid_value` or `unsupported`, and the reason, if the grammar cannot be used;
   * - `queue_full` if too many grammars wait;
   * - `cancelled` if the signal of the request is aborted.
   */
  compile(source: GrammarSource, asker: GrammarAsker): Promise<CompiledGrammar>;
  dispose(): Promise<void>;
}
