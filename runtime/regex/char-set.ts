// Character sets: Unicode code points as a flat list lo, hi, lo, hi of sorted, disjoint ranges, both ends inclusive. No set
// contains surrogates, because a model writes complete characters. No side effects.

import { otherCases } from "./unicode/letter-cases.ts";
import { spend, spendOn } from "./work.ts";

export type CharSet = readonly number[];

export const noChar: CharSet = [];
export const anyChar: CharSet = [0, 0xd7ff, 0xe000, 0x10ffff];
export const asciiChars: CharSet = [0, 0x7f];
export const digitChars: CharSet = [0x30, 0x39];

/** Maximum number of characters of a set to which the other case of its letters can be added. */
const maxFolded = 4096;

export function charSet(ranges: Iterable<readonly [number, number]>): CharSet {
  const sorted = [...ranges].filter(([lo, hi]) => lo <= hi).sort((a, b) => a[0] - b[0]);
  const flat: number[] = [];
  for (const [lo, hi] of sorted) {
    const last = flat[flat.length - 1];
    if (last !== undefined && lo <= last + 1) flat[flat.length - 1] = Math.max(last, hi);
    else flat.push(lo, hi);
  }
  return intersection(flat, anyChar);
}

export function charsOf(text: string): CharSet {
  return charSet([...text].map((char) => [char.codePointAt(0) as number, char.codePointAt(0) as number] as const));
}

export function charOf(code: number): CharSet {
  return code >= 0xd800 && code <= 0xdfff ? noChar : [code, code];
}

export function* rangesOf(set: CharSet): Iterable<readonly [number, number]> {
  for (let i = 0; i < set.length; i += 2) yield [set[i] as number, set[i + 1] as number];
}

export function union(...sets: readonly CharSet[]): CharSet {
  return unionOf(sets);
}

/** Returns the union of a list of sets. Unites the two halves recursively, so that each range is copied only log2(sets) times. */
export function unionOf(sets: readonly CharSet[], from = 0, to = sets.length): CharSet {
  if (to - from <= 1) return sets[from] ?? noChar;
  const middle = (from + to) >> 1;
  return unionOfTwo(unionOf(sets, from, middle), unionOf(sets, middle, to));
}

function unionOfTwo(a: CharSet, b: CharSet): CharSet {
  spendOn(a.length + b.length);
  const all: number[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const isFromA = j >= b.length || (i < a.length && (a[i] as number) <= (b[j] as number));
    const lo = (isFromA ? a[i] : b[j]) as number;
    const hi = (isFromA ? a[i + 1] : b[j + 1]) as number;
    if (isFromA) i += 2;
    else j += 2;
    const last = all.length - 1;
    if (last > 0 && lo <= (all[last] as number) + 1) all[last] = Math.max(all[last] as number, hi);
    else all.push(lo, hi);
  }
  return all;
}

export function intersection(a: CharSet, b: CharSet): CharSet {
  spendOn(a.length + b.length);
  const both: number[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    const lo = Math.max(a[i] as number, b[j] as number);
    const hi = Math.min(a[i + 1] as number, b[j + 1] as number);
    if (lo <= hi) both.push(lo, hi);
    if ((a[i + 1] as number) < (b[j + 1] as number)) i += 2;
    else j += 2;
  }
  return both;
}

export function complement(set: CharSet): CharSet {
  spendOn(set.length);
  const rest: number[] = [];
  let from = 0;
  for (const [lo, hi] of rangesOf(set)) {
    if (from < lo) rest.push(from, lo - 1);
    from = hi + 1;
  }
  if (from <= 0x10ffff) rest.push(from, 0x10ffff);
  return intersection(rest, anyChar);
}

export function difference(a: CharSet, b: CharSet): CharSet {
  return intersection(a, complement(b));
}

export function hasChar(set: CharSet, char: number): boolean {
  let from = 0;
  let to = set.length >> 1;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (char > (set[2 * middle + 1] as number)) from = middle + 1;
    else to = middle;
  }
  return from < set.length >> 1 && char >= (set[2 * from] as number);
}

export function charCount(set: CharSet): number {
  let count = 0;
  for (const [lo, hi] of rangesOf(set)) count += hi - lo + 1;
  return count;
}

/** Returns the set with the other case of its letters added; null if it has more than `maxFolded` characters. */
export function bothCases(set: CharSet): CharSet | null {
  if (charCount(set) > maxFolded) return null;
  const others: (readonly [number, number])[] = [];
  for (const [lo, hi] of rangesOf(set)) {
    for (const other of otherCases(lo, hi)) others.push([other, other]);
  }
  spend(others.length);
  return others.length === 0 ? set : union(set, charSet(others));
}

/** The byte range at each position of a UTF-8 sequence. */
export type ByteRanges = readonly (readonly [number, number])[];

/** Returns the characters beyond ASCII as sequences of byte ranges. Each sequence covers only well-formed UTF-8. */
export function utf8Sequences(set: CharSet): ByteRanges[] {
  spend(set.length);
  const sequences: ByteRanges[] = [];
  for (const [lo, hi] of rangesOf(set)) {
    for (const [from, to] of utf8Lengths) {
      if (Math.max(lo, from) <= Math.min(hi, to)) splitRange(Math.max(lo, from), Math.min(hi, to), sequences);
    }
  }
  return sequences;
}

const utf8Lengths = [
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, 0x10ffff],
] as const;

/** Splits lo..hi into parts. Each part is one sequence of byte ranges. All characters must have the same length in UTF-8. */
function splitRange(lo: number, hi: number, into: ByteRanges[]): void {
  for (let bits = 18; bits >= 6; bits -= 6) {
    const mask = (1 << bits) - 1;
    if (lo >> bits === hi >> bits) continue;
    if ((lo & mask) !== 0) {
      splitRange(lo, lo | mask, into);
      splitRange((lo | mask) + 1, hi, into);
      return;
    }
    if ((hi & mask) !== mask) {
      splitRange(lo, (hi & ~mask) - 1, into);
      splitRange(hi & ~mask, hi, into);
      return;
    }
  }
  const first = utf8(lo);
  const last = utf8(hi);
  into.push(first.map((byte, i) => [byte, last[i] as number] as const));
}

function utf8(char: number): number[] {
  const tail = (shift: number): number => 0x80 | ((char >> shift) & 0x3f);
  if (char < 0x800) return [0xc0 | (char >> 6), tail(0)];
  if (char < 0x10000) return [0xe0 | (char >> 12), tail(6), tail(0)];
  return [0xf0 | (char >> 18), tail(12), tail(6), tail(0)];
}
