// Owns the grammar of strings and of the keys of objects: their patterns and lengths as one automaton. Pure.
import { type Expression, sequence, text } from "../ebnf.ts";
import { type Automaton, anyText, both, isEmpty, lengths, not, ofLength, ofTexts } from "../regex/automaton.ts";
import { charCount } from "../regex/char-set.ts";
import { automatonExpression } from "../regex/expression.ts";
import { RegexProblem } from "../regex/syntax.ts";
import { type Conjunct, type Goal, types } from "./conjunct.ts";
import type { Emitter } from "./emitter.ts";
import { stringSpelling } from "./json-text.ts";

/**
 * Longest text that is counted character by character. The grammar engine looks the whole vocabulary up for each count, so
 * larger bounds are checked in the finished text.
 */
const maxCounted = 64;
/** States of one string that take almost any character, for the same reason. */
const maxWideStates = 160;
const wideChars = 512;

/** null where no string is left. */
export function stringExpression(conjunct: Conjunct, emitter: Emitter): Expression | null {
  const automaton = stringAutomaton(conjunct, emitter);
  if (automaton === anyText) return emitter.shared.string();
  if (isEmpty(automaton)) return null;
  return sequence(text('"'), keyRest(automaton, emitter));
}

/** What follows the opening quote of a string that an automaton describes. */
export function keyRest(automaton: Automaton, emitter: Emitter): Expression {
  return automatonExpression(automaton, emitter.rules, "chars", stringSpelling);
}

function stringAutomaton(conjunct: Conjunct, emitter: Emitter): Automaton {
  let automaton: Automaton = anyText;
  try {
    for (const pattern of conjunct.patterns) automaton = both(automaton, pattern);
    const excluded = conjunct.excluded.filter((value) => typeof value === "string");
    if (excluded.length > 0) automaton = both(automaton, not(ofTexts(excluded)));
  } catch (thrown) {
    if (thrown instanceof RegexProblem) throw emitter.refuse("pattern", thrown.message);
    throw thrown;
  }
  return withLength(automaton, conjunct, emitter);
}

function withLength(automaton: Automaton, { lengthMin, lengthMax }: Conjunct, emitter: Emitter): Automaton {
  if (isEmpty(automaton)) return automaton;
  const own = automaton === anyText ? { min: 0, max: Number.POSITIVE_INFINITY } : lengths(automaton);
  let min = own.min >= lengthMin ? 0 : lengthMin;
  let max = lengthMax !== null && own.max > lengthMax ? lengthMax : null;
  if (max !== null && max > maxCounted) {
    emitter.checkLater("maxLength");
    max = null;
  }
  if (min > maxCounted) {
    emitter.checkLater("minLength");
    min = maxCounted;
  }
  if (min === 0 && max === null) return checkWidth(automaton, emitter);
  try {
    return checkWidth(both(automaton, ofLength(min, max)), emitter);
  } catch (thrown) {
    if (!(thrown instanceof RegexProblem)) throw thrown;
    emitter.checkLater("maxLength");
    return automaton;
  }
}

function checkWidth(automaton: Automaton, emitter: Emitter): Automaton {
  const wide = automaton.filter(({ edges }) => edges.some(({ set }) => charCount(set) > wideChars)).length;
  if (wide <= maxWideStates) return automaton;
  emitter.checkLater("pattern");
  throw emitter.refuse(
    "pattern",
    `the pattern counts more than ${maxWideStates} characters of any kind; bound them less closely`,
  );
}

/** The texts a goal allows as keys; null where it cannot be told. */
export function keyAutomaton(goal: Goal, emitter: Emitter): Automaton | null {
  let all: Automaton | null = null;
  for (const conjunct of emitter.alternatives(goal)) {
    if ((conjunct.types & types.string) === 0) continue;
    const strings = conjunct.values?.filter((value) => typeof value === "string");
    const keys = strings === undefined ? stringAutomaton(conjunct, emitter) : ofTexts(strings);
    // Either of two is neither of both that are not.
    all = all === null ? keys : not(both(not(all), not(keys)));
  }
  return all;
}
