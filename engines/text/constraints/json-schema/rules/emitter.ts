// Emitter: the state that the parts of the schema compiler share, and how a part requests other rules. Implemented by compile.ts,
// used by the compilers of strings, numbers, arrays and objects.
import type { Expression, Rules } from "../../ebnf.ts";
import type { Conjunct, Goal } from "../conjunct.ts";
import type { CountedStrings } from "./counted-strings.ts";
import type { SharedRules } from "./json-text.ts";

export interface Emitter {
  readonly rules: Rules;
  readonly shared: SharedRules;
  readonly counted: CountedStrings;
  /** Rule of the values that match a goal. */
  value(goal: Goal): Expression;
  alternatives(goal: Goal): readonly Conjunct[];
  /** The values that match a goal; null if there are many. */
  values(goal: Goal): readonly unknown[] | null;
  /**
   * Charges wide places (where almost any character may come) to the grammar's budget, once for each key; false if the budget
   * is exhausted.
   */
  affords(widePlaces: readonly string[]): boolean;
  /** The grammar does not enforce this keyword: the finished text must be checked. */
  checkLater(keyword: string): void;
  /** The error for a keyword that neither the grammar nor a check can enforce. */
  refuse(keyword: string, message: string): Error;
}
