// Emitter: the state that the parts of the schema compiler share, and the interface through which a part requests other
// rules. compile.ts implements it; the compilers of strings, numbers, arrays and objects use it.
import type { Expression, Rules } from "../../ebnf/expressions.ts";
import type { Conjunct, Goal } from "../conjunct.ts";
import type { CountedStrings } from "./counted-strings.ts";
import type { SharedRules } from "./json-text.ts";

export interface Emitter {
  readonly rules: Rules;
  readonly shared: SharedRules;
  readonly counted: CountedStrings;
  /** Returns the rule for values that match a goal (a set of schemas). */
  value(goal: Goal): Expression;
  alternatives(goal: Goal): readonly Conjunct[];
  /** Returns the values that match a goal; null if there are too many. */
  values(goal: Goal): readonly unknown[] | null;
  /**
   * Charges wide places (positions where almost any character may come) to the grammar's budget, once for each key.
   * Returns false if the budget is exhausted.
   */
  affords(widePlaces: readonly string[]): boolean;
  /** Records that the grammar does not enforce this keyword, so the finished text must be checked. */
  checkLater(keyword: string): void;
  /** Creates the error for a keyword that neither the grammar nor a check can enforce. */
  refuse(keyword: string, message: string): Error;
}
