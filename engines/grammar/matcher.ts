// Owns what the step loop sees of constrained decoding. Matchers live on a thread of their own beside the compiled grammar:
// they work while the forward pass runs.
import type { GrammarSource } from "./source.ts";

/** A grammar that is compiled and can be matched. */
export interface CompiledGrammar {
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
  /** Whether allowed() answers at once. Not so while its thread compiles another grammar: the sequence sits out. */
  readonly isReady: boolean;
  /** Waits for the answer to the last accept(). Throws `model_failed` where the grammar engine has failed. */
  allowed(): Allowed;
  accept(token: number): void;
  close(): void;
}

export interface GrammarHost {
  /** Rejects with `invalid_value` or `unsupported` naming what is wrong with the grammar. */
  compile(source: GrammarSource): Promise<CompiledGrammar>;
  dispose(): Promise<void>;
}
