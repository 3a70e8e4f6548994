// Number rules: compile bounds and multiples into an automaton over the digits. No side effects.

import { both, isEmpty, not } from "../../../../../runtime/regex/automaton.ts";
import { automatonOf } from "../../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../../runtime/regex/parse.ts";
import type { Automaton } from "../../../../../runtime/regex/states.ts";
import { RegexProblem } from "../../../../../runtime/regex/syntax.ts";
import { ofTexts } from "../../../../../runtime/regex/texts.ts";
import { spend } from "../../../../../runtime/regex/work.ts";
import type { Expression } from "../../ebnf/expressions.ts";
import { automatonExpression, plainSpelling } from "../../regex-rules.ts";
import { type Conjunct, types } from "../conjunct.ts";
import { between, type Decimal, decimalOf, floorDiv, multiplesOf, unitsOf } from "./decimals.ts";
import type { Emitter } from "./emitter.ts";

/** Number of decimal digits that a double represents exactly. */
const maxDigits = 15;
const maxMultipleDigits = 9;
/** Default and maximum number of decimal places. */
const usualPlaces = 6;
const maxPlaces = 12;
const maxRemainders = 5000;
/** Maximum number of multiples between the bounds that are listed individually. */
const maxListed = 256;

/** Returns the expression for the numbers that the conjunct (set of constraints) allows; null if it allows none. */
export function numberExpression(conjunct: Conjunct, emitter: Emitter): Expression | null {
  const isInteger = (conjunct.types & types.fraction) === 0;
  const isFraction = (conjunct.types & types.integer) === 0;
  const excluded = conjunct.excluded.filter((value) => typeof value === "number");
  const isFree = conjunct.lower === null && conjunct.upper === null && conjunct.multiples.length === 0;
  if (isFree && excluded.length === 0 && !isFraction)
    return isInteger ? emitter.shared.integer() : emitter.shared.number();
  const range = rangeOf(conjunct, isInteger);
  if (range.low > range.high) return null;
  try {
    let automaton = inRange(conjunct, range, emitter);
    // Only numbers without trailing zeros are allowed here, so equal numbers have equal texts. Excluded numbers and
    // fractions can then be recognized by their text.
    if (isFraction || excluded.length > 0) automaton = both(automaton, isFraction ? properFraction : canonicalNumber);
    if (excluded.length > 0) automaton = both(automaton, not(ofTexts(excluded.map(plainText))));
    return isEmpty(automaton) ? null : automatonExpression(automaton, emitter.rules, "number", plainSpelling);
  } catch (thrown) {
    if (!(thrown instanceof RegexProblem)) throw thrown;
    throw emitter.refuse("multipleOf", "this number has too many multiples to enforce; loosen it or its bounds");
  }
}

const canonicalNumber = automatonOf(parseRegex("-?\\d+(?:\\.\\d*[1-9])?"), "whole");
const properFraction = automatonOf(parseRegex("-?\\d+\\.\\d*[1-9]"), "whole");

/** Range of the numbers that a conjunct allows. Both bounds are inclusive, in units of 10^-places. */
interface Range {
  readonly low: bigint;
  readonly high: bigint;
  readonly places: number;
}

function rangeOf({ lower, upper, multiples }: Conjunct, isInteger: boolean): Range {
  const bounds = [lower, upper].map((bound) => (bound === null ? null : decimalOf(bound.value)));
  spend(multiples.length);
  const decimals = [...bounds, ...multiples.map(decimalOf)];
  const wanted = decimals.reduce((most, decimal) => Math.max(most, decimal?.places ?? 0), 0);
  const least = multiples.length > 0 ? 0 : usualPlaces;
  const places = isInteger ? 0 : Math.min(maxPlaces, Math.max(least, wanted));
  // Multiples are limited to fewer digits, because with more digits, floating-point division cannot tell a multiple of
  // 0.01 from its neighbours.
  const digits = !isInteger && multiples.length > 0 ? maxMultipleDigits : maxDigits;
  const most = 10n ** BigInt(digits) - 1n;
  const low = inward(bounds[0], lower?.exclusive ?? false, places, 1n);
  const high = inward(bounds[1], upper?.exclusive ?? false, places, -1n);
  const far = [low, high].reduce(
    (widest: bigint, bound) => (bound !== null && magnitude(bound) > widest ? magnitude(bound) * 10n : widest),
    most,
  );
  return { low: low ?? -far, high: high ?? far, places };
}

/**
 * Converts a bound to units of 10^-places. Rounds a lower bound (`direction` 1) up and an upper bound (-1) down. If the
 * bound is exclusive, returns the next number inside the range.
 */
function inward(
  bound: Decimal | null | undefined,
  exclusive: boolean,
  places: number,
  direction: 1n | -1n,
): bigint | null {
  if (bound === null || bound === undefined) return null;
  const units = unitsOf(bound, places, direction === 1n);
  const isExact = unitsOf(bound, places, true) === unitsOf(bound, places, false);
  return exclusive && isExact ? units + direction : units;
}

function magnitude(value: bigint): bigint {
  return value < 0n ? -value : value;
}

function inRange({ multiples }: Conjunct, { low, high, places }: Range, emitter: Emitter): Automaton {
  const units = multiples.map((multiple) => unitsOf(decimalOf(multiple), places, false));
  multiples.forEach((multiple, i) => {
    const isWhole = decimalOf(multiple).places <= places;
    if (!isWhole && places === 0) return;
    if (!isWhole || units[i] === 0n) throw emitter.refuse("multipleOf", `expected at most ${maxPlaces} decimal places`);
  });
  const steps = multiples.map((multiple) => integerStep(multiple, places));
  const listed = listMultiples(steps, low, high, places);
  if (listed !== null) return ofTexts(listed);
  let automaton = automatonOf({ node: between(low, high, places), ahead: [] }, "whole");
  for (const step of steps) {
    if (step > maxRemainders)
      throw emitter.refuse("multipleOf", `multiples of ${multiples[0]} between these bounds cannot be enforced`);
    automaton = both(automaton, multiplesOf(Number(step), places, maxRemainders * (places + 2)));
  }
  return automaton;
}

/**
 * Returns the distance between the multiples of `multiple` that have at most `places` decimal places, in units of the last
 * place. For example, 3 for `multiple` 1.5 and 0 places: the multiples of 1.5 that are integers are the multiples of 3.
 */
function integerStep(multiple: number, places: number): bigint {
  const decimal = decimalOf(multiple);
  if (decimal.places <= places) return unitsOf(decimal, places, false);
  const scale = 10n ** BigInt(decimal.places - places);
  return decimal.digits / gcd(decimal.digits, scale);
}

function gcd(a: bigint, b: bigint): bigint {
  return b === 0n ? a : gcd(b, a % b);
}

function listMultiples(steps: readonly bigint[], low: bigint, high: bigint, places: number): string[] | null {
  const step = steps.reduce((all, one) => {
    spend(1 + all.toString(16).length / 16);
    return (all * one) / gcd(all, one);
  }, 1n);
  if (steps.length === 0 || (high - low) / step > BigInt(maxListed)) return null;
  const listed: string[] = [];
  for (let units = -floorDiv(-low, step) * step; units <= high; units += step) listed.push(unitsText(units, places));
  return listed;
}

function unitsText(units: bigint, places: number): string {
  const digits = magnitude(units)
    .toString()
    .padStart(places + 1, "0");
  const fraction = digits.slice(digits.length - places).replace(/0+$/, "");
  const whole = digits.slice(0, digits.length - places);
  return `${units < 0n ? "-" : ""}${whole}${places > 0 && fraction !== "" ? `.${fraction}` : ""}`;
}

/** Writes the number without an exponent. */
function plainText(value: number): string {
  const { digits, places } = decimalOf(value);
  return unitsText(digits, places);
}
