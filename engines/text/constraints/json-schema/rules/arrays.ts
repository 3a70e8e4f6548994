// Array rules: the grammar rules of a JSON array. A grammar cannot count, so each state in the array has its own
// rule. A state consists of the number of items, the number of matches of each `contains`, and the set of unique
// values used so far (if there are few values). No side effects.

import { spend, spendOn } from "../../../../../runtime/regex/work.ts";
import { choiceOf, type Expression, rule, sequence, text } from "../../ebnf/expressions.ts";
import type { Conjunct, Contains, Goal } from "../conjunct.ts";
import { itemGoal } from "../contradiction.ts";
import { canonical } from "../values.ts";
import type { Emitter } from "./emitter.ts";
import { closeArray, comma, openArray, valueText } from "./json-text.ts";

/** Maximum number of items that the grammar counts. A larger bound is checked in the finished text. */
const maxCounted = 128;
const maxPlaces = 600;
/**
 * Maximum number of unique values that may come in any order. If there are more, they must come in the order of the
 * list.
 */
const maxAnyOrder = 6;

interface Place {
  readonly index: number;
  /** Number of matching items so far, for each `contains`. */
  readonly found: readonly number[];
  /**
   * Unique values used so far. If any order is allowed: a bit mask. If the order is fixed: the index after the last
   * value used.
   */
  readonly used: number;
}

interface ArrayPlan {
  readonly conjunct: Conjunct;
  readonly min: number;
  readonly max: number | null;
  /** Index from which all items have the same schema. */
  readonly alike: number;
  readonly unique: readonly unknown[] | null;
}

export function arrayExpression(conjunct: Conjunct, emitter: Emitter): Expression {
  return new ArrayRules(planOf(conjunct, emitter), emitter).expression();
}

function planOf(conjunct: Conjunct, emitter: Emitter): ArrayPlan {
  const prefix = conjunct.arrays.reduce((longest, layer) => Math.max(longest, layer.prefix.length), 0);
  let min = conjunct.itemsMin;
  let max = conjunct.itemsMax;
  if (min > maxCounted) {
    emitter.checkLater("minItems");
    min = maxCounted;
  }
  if (max !== null && max > maxCounted) {
    emitter.checkLater("maxItems");
    max = null;
  }
  const isUnique = conjunct.unique && max !== 0 && max !== 1;
  const unique = isUnique ? uniqueValues(conjunct, prefix, emitter) : null;
  if (isUnique && unique === null) emitter.checkLater("uniqueItems");
  return { conjunct, min, max, alike: prefix, unique };
}

/**
 * Returns the possible values of the items of a unique array, if they are few and the same for all indices; otherwise
 * null.
 */
function uniqueValues(conjunct: Conjunct, prefix: number, emitter: Emitter): readonly unknown[] | null {
  if (prefix > 0 || conjunct.contains.length > 0) return null;
  const values = emitter.values(itemGoal(conjunct, 0));
  if (values === null) return null;
  return [...new Map(values.map((value) => [canonical(value), value])).values()];
}

class ArrayRules {
  readonly #plan: ArrayPlan;
  readonly #emitter: Emitter;
  readonly #names = new Map<string, string>();
  readonly #todo: Place[] = [];

  constructor(plan: ArrayPlan, emitter: Emitter) {
    this.#plan = plan;
    this.#emitter = emitter;
  }

  expression(): Expression {
    const start: Place = { index: 0, found: this.#plan.conjunct.contains.map(() => 0), used: 0 };
    const options = this.#next(start);
    const whole = sequence(openArray, choiceOf([...(this.#mayEnd(start) ? [text("]")] : []), ...options]));
    for (let place = this.#todo.pop(); place !== undefined; place = this.#todo.pop()) {
      const rest = this.#next(place).map((option) => sequence(comma, option));
      const name = this.#names.get(keyOf(place)) as string;
      this.#emitter.rules.define(name, choiceOf([...(this.#mayEnd(place) ? [closeArray] : []), ...rest]));
    }
    return whole;
  }

  #mayEnd({ index, found }: Place): boolean {
    const { min, conjunct } = this.#plan;
    return index >= min && conjunct.contains.every((contains, i) => (found[i] as number) >= contains.min);
  }

  /** Returns one expression for each possible next item. The expression includes the text after the item. */
  #next(place: Place): Expression[] {
    const { max, unique } = this.#plan;
    if (max !== null && place.index >= max) return [];
    if (unique !== null) return this.#nextUnique(place, unique);
    return this.#steps(place).map((step) =>
      sequence(this.#emitter.value(step.goal), this.#place({ ...place, index: place.index + 1, found: step.found })),
    );
  }

  /**
   * Returns one step (constraints on the next item, and the match counts after it) for each combination of `contains`
   * schemas that the next item may match. Each step leads to a different rule.
   */
  #steps({ index, found }: Place): readonly Step[] {
    const { conjunct } = this.#plan;
    let steps: readonly Step[] = [{ goal: itemGoal(conjunct, index), found: [] }];
    for (const [i, contains] of conjunct.contains.entries()) {
      steps = steps.flatMap((step) => contained(step, contains, found[i] as number));
      if (steps.length > maxPlaces) throw this.#tooMany();
    }
    return steps;
  }

  #tooMany(): Error {
    return this.#emitter.refuse("contains", "this must count too many items at once; loosen its bounds");
  }

  #nextUnique(place: Place, unique: readonly unknown[]): Expression[] {
    const isAnyOrder = unique.length <= maxAnyOrder;
    return unique.flatMap((value, i) => {
      spend(2);
      if (isAnyOrder ? (place.used & (1 << i)) !== 0 : i < place.used) return [];
      // If the order is fixed, the index after the last value determines which values may follow.
      const used = isAnyOrder ? place.used | (1 << i) : i + 1;
      return [sequence(valueText(value), this.#place({ ...place, index: place.index + 1, used }))];
    });
  }

  #place(place: Place): Expression {
    const { min, max, alike } = this.#plan;
    const last = Math.max(min, alike, max ?? 0);
    const settled = { ...place, index: max === null ? Math.min(place.index, last) : place.index };
    const key = keyOf(settled);
    let name = this.#names.get(key);
    if (name === undefined) {
      if (this.#names.size >= maxPlaces) throw this.#tooMany();
      name = this.#emitter.rules.reserve("items");
      this.#names.set(key, name);
      this.#todo.push(settled);
    }
    return rule(name);
  }
}

interface Step {
  readonly goal: Goal;
  readonly found: readonly number[];
}

/**
 * Returns up to two steps (constraints on the next item, and the match counts after it): one for an item that matches
 * the `contains` schema, one for an item that does not match.
 */
function contained({ goal, found }: Step, { item, min, max }: Contains, count: number): Step[] {
  spend(2);
  spendOn(2 * (goal.length + found.length));
  const most = max ?? min;
  const other = { node: item.node, negated: !item.negated };
  const matching: Step[] = count < most ? [{ goal: [...goal, item], found: [...found, count + 1] }] : [];
  // Without an upper bound, a matching item need not be counted. So the step for items that do not match may accept
  // matching items too.
  const rest = max === null ? goal : [...goal, other];
  const isDone = count >= min;
  return max === null && isDone
    ? [{ goal, found: [...found, count] }]
    : [...matching, { goal: rest, found: [...found, count] }];
}

function keyOf({ index, found, used }: Place): string {
  return `${index}:${found.join()}:${used}`;
}
