// Owns the syntax trees of regular expressions, as parse.ts makes them and automaton.ts and expression.ts take them. Pure.
import type { CharSet } from "./char-set.ts";

export type RegexNode =
  | { readonly kind: "set"; readonly set: CharSet }
  | { readonly kind: "sequence"; readonly parts: readonly RegexNode[] }
  | { readonly kind: "choice"; readonly options: readonly RegexNode[] }
  | { readonly kind: "repeat"; readonly of: RegexNode; readonly min: number; readonly max: number | null }
  /** The beginning and the end of the text. */
  | { readonly kind: "start" }
  | { readonly kind: "end" };

export interface Regex {
  readonly node: RegexNode;
  /** What the text must, or must not, go on with where the pattern begins: leading lookaheads. */
  readonly ahead: readonly { readonly node: RegexNode; readonly negated: boolean }[];
}

/** What a construct that cannot be translated is called in the error. */
export class RegexProblem extends Error {
  readonly code: "invalid_value" | "unsupported";

  constructor(code: "invalid_value" | "unsupported", message: string) {
    super(message);
    this.code = code;
  }
}
