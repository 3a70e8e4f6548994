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
  let test: RegExp;
  try {
    test = new RegExp(`^\\p{${name}}$`, "u");
  } catch {
    return null;
  }
  const set = charsThatMatch(test);
  if (kept.size >= maxKept) kept.clear();
  kept.set(name, set);
  return set;
}

function charsThatMatch(test: RegExp): CharSet {
  const ranges: (readonly [number, number])[] = [];
  let from = -1;
  for (let char = 0; char <= 0x110000; char++) {
    const isIn = char < 0x110000 && test.test(String.fromCodePoint(char));
    if (isIn && from === -1) from = char;
    if (isIn || from === -1) continue;
    ranges.push([from, char - 1]);
    from = -1;
  }
  return charSet(ranges);
}
