// Owns the sets of the Unicode properties that patterns name (\p{L}), read off the runtime's own regular expressions and kept,
// since looking through all characters takes a while. For parse.ts.
import { type CharSet, charSet } from "./char-set.ts";

const maxKept = 32;
const kept = new Map<string, CharSet>();

/** null where there is no such property. */
export function propertySet(name: string): CharSet | null {
  const known = kept.get(name);
  if (known !== undefined) return known;
  // What could end the property and go on as a pattern of its own is no name.
  if (!/^[\w=]{1,60}$/.test(name)) return null;
  let found: RegExp;
  try {
    found = new RegExp(`\\p{${name}}+`, "gu");
  } catch {
    return null;
  }
  const set = charsThatMatch(found);
  if (kept.size >= maxKept) kept.clear();
  kept.set(name, set);
  return set;
}

function charsThatMatch(found: RegExp): CharSet {
  const ranges: (readonly [number, number])[] = [];
  for (const [from, to] of segments) {
    for (let first = from; first <= to; first += segmentChars) {
      const count = Math.min(segmentChars, to - first + 1);
      const text = String.fromCodePoint(...Array.from({ length: count }, (_, i) => first + i));
      const units = first < 0x10000 ? 1 : 2;
      for (const match of text.matchAll(found)) {
        const at = first + match.index / units;
        ranges.push([at, at + match[0].length / units - 1]);
      }
    }
  }
  return charSet(ranges);
}

/** All characters but surrogates; of the same length in UTF-16 within each. */
const segments = [
  [0, 0xd7ff],
  [0xe000, 0xffff],
  [0x10000, 0x10ffff],
] as const;
const segmentChars = 8192;
