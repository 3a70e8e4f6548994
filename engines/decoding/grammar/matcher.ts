// Interface of constrained decoding for the model's place. Matchers live on grammar threads, beside the compiled
// grammars, and work while the forward pass runs.
import type { GrammarSource } from "../../grammar-source.ts";

/** A compiled grammar. */
export interface CompiledGrammar {
  /** Opens a matcher. Throws `queue_full` if too many are open, `model_failed` if no thread can be started. */
  open(): Matcher;
}

/** The tokens that may come next. Views: valid until the next accept(). */
export interface Allowed {
  /** Tokens that come next in any case; the matcher has accepted them. */
  readonly forced: Int32Array;
  /** Tokens that may follow them: a bit each, the lowest bit of word 0 first. */
  readonly mask: Int32Array;
}

/** Follows the tokens of one sequence. */
export interface Matcher {
  /** The request field that demands the grammar. */
  readonly param: string | undefined;
  /**
   * Whether the answer to the last accept() has come, or will probably come before the end of a forward pass. If not,
   * the sequence sits out the step.
   */
  readonly isReady: boolean;
  /**
   * Waits for at most this time in ms. Returns whether the answer has come; after false, isReady is false until it
   * comes.
   */
  wait(limitMs: number): boolean;
  /**
   * The answer; call only after wait() returned true. Throws `model_failed` if the grammar engine has failed,
   * `unsupported` if the grammar takes too much time.
   */
  allowed(): Allowed;
  /** Call only after the previous answer has come. */
  accept(token: number): void;
  close(): void;
}

/** The request that asks for a grammar. */
export interface GrammarAsker {
  readonly client: string;
  /** Aborted if the request does not need the grammar any more; it is compiled only if another request needs it. */
  readonly signal: AbortSignal;
}

export interface GrammarHost {
  /**
   * Rejects with `invalid_value` or `unsupported` and what is wrong with the grammar, `queue_full` if too many grammars
   * wait, `cancelled` if it is aborted.
   */
  compile(source: GrammarSource, asker: GrammarAsker): Promise<CompiledGrammar>;
  dispose(): Promise<void>;
}
