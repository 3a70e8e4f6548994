// Owns what the parts of the schema compiler share: the rules made so far, and how a part asks for the rest. Implemented by
// compile.ts, used by what compiles strings, numbers, arrays and objects.
import type { Expression, Rules } from "../../ebnf.ts";
import type { Conjunct, Goal } from "../conjunct.ts";
import type { CountedStrings } from "./counted-strings.ts";
import type { SharedRules } from "./json-text.ts";

export interface Emitter {
  readonly rules: Rules;
  readonly shared: SharedRules;
  readonly counted: CountedStrings;
  /** The rule of the values that match a goal. */
  value(goal: Goal): Expression;
  alternatives(goal: Goal): readonly Conjunct[];
  /** The few values that match a goal, or null where there are many. */
  values(goal: Goal): readonly unknown[] | null;
  /**
   * Takes places where almost any character may come from what a grammar may have of them, once for each key; false where
   * it has not so many left.
   */
  affords(widePlaces: readonly string[]): boolean;
  /** The grammar lets through what this keyword forbids: the finished text is to be checked. */
  checkLater(keyword: string): void;
  /** For a keyword that neither the grammar nor the model can be relied upon to keep. */
  refuse(keyword: string, message: string): Error;
}
