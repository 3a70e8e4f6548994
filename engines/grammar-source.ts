// Owns what a grammar is between the agents side, which translates what clients send, and the model's place, which compiles
// it: plain data that the grammar engine takes.

export interface GrammarSource {
  readonly kind: "ebnf";
  /** Rules in the grammar engine's EBNF; texts begin with `root`. */
  readonly grammar: string;
  /** Control tokens that may stand for the text of their names: those a call is written with. None where it is left out. */
  readonly shownTokens?: readonly number[];
  /** The request field that asks for it, which a refusal names. */
  readonly param?: string;
}
