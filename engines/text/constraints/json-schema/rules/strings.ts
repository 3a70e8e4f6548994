// String rules: compile patterns and lengths of strings and object keys into one automaton. No side effects.

import { both, isEmpty, lengths, not, ofLength } from "../../../../../runtime/regex/automaton.ts";
import { type Automaton, anyText } from "../../../../../runtime/regex/states.ts";
import { RegexProblem } from "../../../../../runtime/regex/syntax.ts";
import { ofTexts } from "../../../../../runtime/regex/texts.ts";
import { widePlaces } from "../../../../../runtime/regex/wide-edges.ts";
import { type Expression, isNever, never, sequence, text } from "../../ebnf/expressions.ts";
import { automatonExpression } from "../../regex-rules.ts";
import { type Conjunct, type Goal, types } from "../conjunct.ts";
import type { Emitter } from "./emitter.ts";
import { stringSpelling } from "./json-text.ts";

/** Maximum length bound that the grammar counts. Larger bounds are checked in the finished text. */
const maxCounted = 1000;
/**
 * Maximum length bound that is counted in a string with a pattern. For such a string, the grammar engine searches its
 * whole vocabulary for each count.
 */
const maxCountedInPattern = 64;

/** Returns the expression for the strings that the conjunct (set of constraints) allows; null if it allows none. */
export function stringExpression(conjunct: Conjunct, emitter: Emitter): Expression | null {
  const excluded = conjunct.excluded.filter((value) => typeof value === "string");
  if (conjunct.patterns.length === 0 && excluded.length === 0) return plainString(conjunct, emitter);
  if (excluded.length > 0) return shapedString(conjunct, excluded, emitter) ?? null;
  // Strings with equal constraints share one expression, because many fields of a schema have the
  // same pattern, format or bounds.
  const patterns = conjunct.patterns.map((pattern) => emitter.shared.automatonKey(pattern));
  const key = `string ${patterns.join()} ${conjunct.lengthMin} ${conjunct.lengthMax}`;
  const made = emitter.shared.once(key, () => shapedString(conjunct, excluded, emitter) ?? never);
  return isNever(made) ? null : made;
}

function shapedString(conjunct: Conjunct, excluded: readonly string[], emitter: Emitter): Expression | null {
  const automaton = withLength(shapeAutomaton(conjunct, excluded, emitter), conjunct, emitter);
  return isEmpty(automaton) ? null : sequence(text('"'), keyRest(automaton, emitter));
}

/** Returns the expression for the text after the opening quote of a string that the automaton accepts. */
export function keyRest(automaton: Automaton, emitter: Emitter): Expression {
  const { rules, shared } = emitter;
  const make = () => automatonExpression(automaton, rules, "chars", stringSpelling, shared.common);
  return shared.once(shared.automatonKey(automaton), make);
}

/** Returns the expression for a string whose only constraint is its length. */
function plainString({ lengthMin, lengthMax }: Conjunct, emitter: Emitter): Expression | null {
  if (lengthMax !== null && lengthMax < lengthMin) return null;
  const min = lengthMin <= maxCounted ? lengthMin : 0;
  const max = lengthMax !== null && lengthMax <= maxCounted ? lengthMax : null;
  const rest = min === 0 && max === null ? null : emitter.counted.rest(min, max);
  if (lengthMin > 0 && (rest === null || min !== lengthMin)) emitter.checkLater("minLength");
  if (lengthMax !== null && (rest === null || max !== lengthMax)) emitter.checkLater("maxLength");
  return rest === null ? emitter.shared.string() : sequence(text('"'), rest);
}

/** Returns the automaton that accepts the texts that match all patterns and are not excluded. */
function shapeAutomaton(conjunct: Conjunct, excluded: readonly string[], emitter: Emitter): Automaton {
  let automaton: Automaton = anyText;
  try {
    for (const pattern of conjunct.patterns) automaton = both(automaton, pattern);
    if (excluded.length > 0) automaton = both(automaton, not(ofTexts(excluded)));
  } catch (thrown) {
    if (thrown instanceof RegexProblem) throw emitter.refuse("pattern", thrown.message);
    throw thrown;
  }
  return automaton;
}

function withLength(automaton: Automaton, { lengthMin, lengthMax }: Conjunct, emitter: Emitter): Automaton {
  if (isEmpty(automaton)) return automaton;
  const own = automaton === anyText ? { min: 0, max: Number.POSITIVE_INFINITY } : lengths(automaton);
  const min = own.min >= lengthMin ? 0 : lengthMin;
  const max = lengthMax !== null && own.max > lengthMax ? lengthMax : null;
  const least = min <= maxCountedInPattern ? min : 0;
  const most = max !== null && max <= maxCountedInPattern ? max : null;
  const counted = least === 0 && most === null ? automaton : countedChars(automaton, least, most);
  const isAffordable = counted !== null && affords(counted, emitter);
  if (min !== 0 && (least === 0 || !isAffordable)) emitter.checkLater("minLength");
  if (max !== null && (most === null || !isAffordable)) emitter.checkLater("maxLength");
  if (isAffordable) return counted;
  if (affords(automaton, emitter)) return automaton;
  throw emitter.refuse("pattern", "this must count too many characters one by one; loosen the length bounds");
}

function countedChars(automaton: Automaton, min: number, max: number | null): Automaton | null {
  try {
    return both(automaton, ofLength(min, max));
  } catch (thrown) {
    if (thrown instanceof RegexProblem) return null;
    throw thrown;
  }
}

/**
 * Charges the automaton's wide places (positions where almost any character may come) to the grammar's budget. Places
 * that were already charged cost nothing. Returns false if the budget is exhausted.
 */
export function affords(automaton: Automaton, emitter: Emitter): boolean {
  const own = emitter.shared.automatonKey(automaton);
  return emitter.affords(widePlaces(automaton).map(({ key, isCommon }) => (isCommon ? key : `${own}: ${key}`)));
}

/** Returns the automaton that accepts the keys that a goal (a set of schemas) allows; null if it allows no string. */
export function keyAutomaton(goal: Goal, emitter: Emitter): Automaton | null {
  let all: Automaton | null = null;
  for (const conjunct of emitter.alternatives(goal)) {
    if ((conjunct.types & types.string) === 0) continue;
    const strings = conjunct.values?.filter((value) => typeof value === "string");
    const keys = strings === undefined ? patternedKeys(conjunct, emitter) : ofTexts(strings);
    // Union by De Morgan's law: the complement of the intersection of both complements.
    all = all === null ? keys : not(both(not(all), not(keys)));
  }
  return all;
}

function patternedKeys(conjunct: Conjunct, emitter: Emitter): Automaton {
  const excluded = conjunct.excluded.filter((value) => typeof value === "string");
  return withLength(shapeAutomaton(conjunct, excluded, emitter), conjunct, emitter);
}
