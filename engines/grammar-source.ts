// Grammar source: a grammar in the grammar engine's EBNF, as plain data. Text workers translate clients' grammars into
// it; the model's place compiles it.

export interface GrammarSource {
  readonly kind: "ebnf";
  /** Rules in the grammar engine's EBNF; texts begin with `root`. */
  readonly grammar: string;
  /** Control tokens that may stand for the text of their names, because calls are written with them; default: none. */
  readonly shownTokens?: readonly number[];
  /** The request field with the grammar, for error messages. */
  readonly param?: string;
}
