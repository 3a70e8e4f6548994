// Syntax trees of regular expressions: made by parse.ts, converted to automata by determinise.ts and to grammar rules by
// engines/text/constraints/regex-rules.ts. Pure.
import type { CharSet } from "./char-set.ts";

export type RegexNode =
  | { readonly kind: "set"; readonly set: CharSet }
  | { readonly kind: "sequence"; readonly parts: readonly RegexNode[] }
  | { readonly kind: "choice"; readonly options: readonly RegexNode[] }
  | { readonly kind: "repeat"; readonly of: RegexNode; readonly min: number; readonly max: number | null }
  /** The assertions `^` and `$`. */
  | { readonly kind: "start" }
  | { readonly kind: "end" };

export interface Regex {
  readonly node: RegexNode;
  /**
   * Lookaheads at the beginning of the pattern. The text must begin with a match of `node`; if `negated`, the text must not.
   */
  readonly ahead: readonly { readonly node: RegexNode; readonly negated: boolean }[];
}

/** Error for a pattern that is invalid or cannot be translated. */
export class RegexProblem extends Error {
  readonly code: "invalid_value" | "unsupported";

  constructor(code: "invalid_value" | "unsupported", message: string) {
    super(message);
    this.code = code;
  }
}
