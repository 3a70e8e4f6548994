// Decimals: a regular expression for the numbers between two bounds, and an automaton for the multiples of a number.
// A number is represented by an integer in units of its last decimal place (1.25 by 125), which avoids floating-point
// errors. Used by numbers.ts. No side effects.

import { type CharSet, charsOf } from "../../../../../runtime/regex/char-set.ts";
import { least } from "../../../../../runtime/regex/least.ts";
import { type Automaton, explore } from "../../../../../runtime/regex/states.ts";
import type { RegexNode } from "../../../../../runtime/regex/syntax.ts";
import { spend, spendOn } from "../../../../../runtime/regex/work.ts";

/** A number: all its digits, and the number of digits after the decimal point. */
export interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

/** Returns the shortest decimal that equals this number. */
export function decimalOf(value: number): Decimal {
  const [mantissa, exponent] = value.toExponential().split("e") as [string, string];
  const [whole, fraction = ""] = mantissa.split(".") as [string, string?];
  const places = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  return places >= 0 ? { digits, places } : { digits: digits * 10n ** BigInt(-places), places: 0 };
}

/** Returns the number in units of 10^-wanted, rounded up if `up` is true, else rounded down. */
export function unitsOf({ digits, places }: Decimal, wanted: number, up: boolean): bigint {
  if (places <= wanted) return digits * 10n ** BigInt(wanted - places);
  return up ? -floorDiv(-digits, 10n ** BigInt(places - wanted)) : floorDiv(digits, 10n ** BigInt(places - wanted));
}

export function floorDiv(a: bigint, b: bigint): bigint {
  return a >= 0n || a % b === 0n ? a / b : a / b - 1n;
}

/** Matches numbers from `low` to `high`, both in units of 10^-places, with at most `places` decimal places. */
export function between(low: bigint, high: bigint, places: number): RegexNode {
  const options: RegexNode[] = [];
  for (let used = 0; used <= places; used++) {
    const unit = 10n ** BigInt(places - used);
    options.push(...signed(-floorDiv(-low, unit), floorDiv(high, unit), used));
  }
  return { kind: "choice", options };
}

function* signed(low: bigint, high: bigint, places: number): Iterable<RegexNode> {
  if (low < 0n) {
    const magnitudes = [...ofMagnitude(high < 0n ? -high : 1n, -low, places)];
    yield { kind: "sequence", parts: [chars("-"), { kind: "choice", options: magnitudes }] };
  }
  if (high >= 0n) yield* ofMagnitude(low > 0n ? low : 0n, high, places);
}

/** Yields one expression per digit count, for the numbers from `low` to `high`. A number is padded to `places` + 1 digits. */
function* ofMagnitude(low: bigint, high: bigint, places: number): Iterable<RegexNode> {
  const fewest = places + 1;
  for (let count = fewest; count <= Math.max(fewest, high.toString().length); count++) {
    const least = count === fewest ? 0n : 10n ** BigInt(count - 1);
    const most = 10n ** BigInt(count) - 1n;
    const from = low > least ? low : least;
    const to = high < most ? high : most;
    if (from <= to) yield digits(from.toString().padStart(count, "0"), to.toString().padStart(count, "0"), places);
  }
}

/** Matches the digit strings from `from` to `to`, which have the same length. */
function digits(from: string, to: string, places: number): RegexNode {
  spend(4);
  spendOn(4 * from.length);
  const first = Number(from[0]);
  const last = Number(to[0]);
  if (from.length === 0) return { kind: "sequence", parts: [] };
  const point = from.length === places ? [chars(".")] : [];
  const rest = (low: string, high: string): RegexNode => digits(low, high, places);
  const zeros = "0".repeat(from.length - 1);
  const nines = "9".repeat(from.length - 1);
  if (/^0*$/.test(from) && /^9*$/.test(to)) {
    return { kind: "sequence", parts: [...point, range(0, 9), rest(zeros, nines)] };
  }
  if (first === last)
    return { kind: "sequence", parts: [...point, range(first, first), rest(from.slice(1), to.slice(1))] };
  const options: RegexNode[] = [{ kind: "sequence", parts: [range(first, first), rest(from.slice(1), nines)] }];
  if (first + 1 < last) options.push({ kind: "sequence", parts: [range(first + 1, last - 1), rest(zeros, nines)] });
  options.push({ kind: "sequence", parts: [range(last, last), rest(zeros, to.slice(1))] });
  return { kind: "sequence", parts: [...point, { kind: "choice", options }] };
}

function chars(text: string): RegexNode {
  return { kind: "set", set: charsOf(text) };
}

function range(from: number, to: number): RegexNode {
  return { kind: "set", set: [0x30 + from, 0x30 + to] };
}

const minusChar = charsOf("-");
const pointChar = charsOf(".");
const digitChars: readonly CharSet[] = Array.from({ length: 10 }, (_, digit) => [0x30 + digit, 0x30 + digit]);

/** State after some digits: the remainder, and the number of digits after the decimal point (-1: no point yet). */
interface Read {
  readonly remainder: number;
  readonly places: number;
}

/** Matches numbers with at most `places` decimal places that are multiples of `unit` (in units of 10^-places). */
export function multiplesOf(unit: number, places: number, maxStates: number): Automaton {
  const scale = Array.from({ length: places + 1 }, (_, i) => Number(10n ** BigInt(places - i) % BigInt(unit)));
  return least(
    explore<Read | null>(
      null,
      (read) => (read === null ? "" : read.remainder * (places + 2) + read.places + 1),
      (read) => {
        if (read === null)
          return {
            accepts: false,
            edges: [{ set: minusChar, to: null }, ...nextDigits({ remainder: 0, places: -1 }, unit)],
          };
        const factor = scale[Math.max(0, read.places)] as number;
        const edges = read.places < places ? nextDigits(read, unit) : [];
        const point = read.places === -1 && places > 0 ? [{ set: pointChar, to: { ...read, places: 0 } }] : [];
        return { accepts: read.places !== 0 && (read.remainder * factor) % unit === 0, edges: [...edges, ...point] };
      },
      maxStates,
    ),
  );
}

function nextDigits({ remainder, places }: Read, unit: number): { set: CharSet; to: Read }[] {
  return Array.from({ length: 10 }, (_, digit) => ({
    set: digitChars[digit] as CharSet,
    to: { remainder: (remainder * 10 + digit) % unit, places: places === -1 ? -1 : places + 1 },
  }));
}
