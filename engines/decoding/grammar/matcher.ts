// The model place's interface to constrained decoding. Matchers live on grammar threads, beside the compiled grammars, and work
// while the forward pass runs.
import type { GrammarSource } from "../../grammar-source.ts";

/** A grammar that is compiled and can be matched. */
export interface CompiledGrammar {
  /** Throws `queue_full` where too many matchers are open, and `model_failed` where no thread can be started for it. */
  open(): Matcher;
}

/** What may come next. Views: valid until the next accept(). */
export interface Allowed {
  /** Tokens that come next whatever the model says; the matcher has accepted them. */
  readonly forced: Int32Array;
  /** Which tokens may follow them, a bit each, the lowest bit of word 0 first. */
  readonly mask: Int32Array;
}

/** Follows the tokens of one sequence. */
export interface Matcher {
  /** The request field that asks for its grammar. */
  readonly param: string | undefined;
  /**
   * Whether the answer to the last accept() is there, or likely to be there by the end of a forward pass: where it is not,
   * the sequence sits out.
   */
  readonly isReady: boolean;
  /** Waits so many ms at most. Returns whether the answer is there; where it is not, isReady is false until it is. */
  wait(limitMs: number): boolean;
  /**
   * The answer, where wait() said that it is there. Throws `model_failed` where the grammar engine has failed, and
   * `unsupported` where the grammar takes too much time.
   */
  allowed(): Allowed;
  /** Only where the answer before is there. */
  accept(token: number): void;
  close(): void;
}

/** Who asks for a grammar. */
export interface GrammarAsker {
  readonly client: string;
  /** Aborted when the grammar is not wanted any more: it is not compiled then, unless somebody else wants it. */
  readonly signal: AbortSignal;
}

export interface GrammarHost {
  /**
   * Rejects with `invalid_value` or `unsupported` naming what is wrong with the grammar, with `queue_full` where too many
   * wait to be compiled, and with `cancelled` when it is aborted.
   */
  compile(source: GrammarSource, asker: GrammarAsker): Promise<CompiledGrammar>;
  dispose(): Promise<void>;
}
