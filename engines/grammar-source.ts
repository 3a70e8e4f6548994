// Grammar source: a grammar in the grammar engine's EBNF, as plain data. Text workers translate clients' grammars into
// this form; the thread or process that runs the model compiles it.

/** `ebnf`: the grammar engine's EBNF; `gbnf`: llama.cpp's notation, for models on other servers. */
export type GrammarNotation = "ebnf" | "gbnf";

export interface GrammarSource {
  readonly kind: GrammarNotation;
  /** Rules of the grammar, in the notation that `kind` names. The start rule is `root`. */
  readonly grammar: string;
  /**
   * Control tokens that the grammar may match by their names, because tool calls contain such tokens; default: none.
   */
  readonly shownTokens?: readonly number[];
  /** Request field that contained the grammar, for error messages. */
  readonly param?: string;
}
