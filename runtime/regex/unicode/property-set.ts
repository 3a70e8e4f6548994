// Sets of the Unicode properties in patterns (\p{L}), computed with the runtime's own regular expressions and cached. Only one
// character is tested in each long block of characters with equal properties, so a set takes a few ms. Used by parse.ts.

import type { CharSet } from "../char-set.ts";
import { spend } from "../work.ts";

/** Maximum number of cached sets. It exceeds the number of property names in all spellings. */
const maxKept = 1000;
const kept = new Map<string, CharSet>();
/** Units of work (see work.ts) counted for each set, cached or not, so that the work of a grammar does not depend on earlier ones. */
const unitsOfSet = 5000;

/** Returns the set of a property; null if there is no such property. */
export function propertySet(name: string): CharSet | null {
  spend(unitsOfSet);
  const known = kept.get(name);
  if (known !== undefined) return known;
  // Rejects a text that is not a name. It is inserted into \p{…}, so a brace in it could end the property and continue the pattern.
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

/** Sample characters. Each represents the block of characters that begins with it. */
interface Sample {
  readonly text: string;
  /** Number of UTF-16 code units of each character of `text`. */
  readonly units: 1 | 2;
  readonly firsts: Int32Array;
  readonly lasts: Int32Array;
}

let samples: readonly Sample[] | null = null;

function charsThatMatch(found: RegExp): CharSet {
  samples ??= [sampleOf(0, 0xffff), sampleOf(0x10000, 0x10ffff)];
  const set: number[] = [];
  for (const { text, units, firsts, lasts } of samples) {
    for (const match of text.matchAll(found)) {
      const from = match.index / units;
      for (let at = from; at < from + match[0].length / units; at++)
        append(set, firsts[at] as number, lasts[at] as number);
    }
  }
  return set;
}

function append(set: number[], first: number, last: number): void {
  if (set.at(-1) === first - 1) set[set.length - 1] = last;
  else set.push(first, last);
}

function sampleOf(from: number, to: number): Sample {
  const firsts: number[] = [];
  const lasts: number[] = [];
  for (let char = from; char <= to; char = (lasts.at(-1) as number) + 1) {
    if (char === 0xd800) char = 0xe000;
    firsts.push(char);
    lasts.push(uniformBlocks.get(char) ?? char);
  }
  const text = firsts.map((char) => String.fromCodePoint(char)).join("");
  return { text, units: from === 0 ? 1 : 2, firsts: Int32Array.from(firsts), lasts: Int32Array.from(lasts) };
}

/**
 * Blocks of characters with equal properties: ideographs, Hangul, Tangut, private use, unassigned. Maps the first character of
 * each block to the last one.
 */
const uniformBlocks: ReadonlyMap<number, number> = new Map([
  [0x3400, 0x4dbf],
  [0x4e00, 0x9fff],
  [0xac00, 0xd7a3],
  [0xe000, 0xf8ff],
  [0x17000, 0x187f7],
  [0x20000, 0x2a6df],
  [0x2a700, 0x2b734],
  [0x2b740, 0x2b81d],
  [0x2b820, 0x2cea1],
  [0x2ceb0, 0x2ebe0],
  [0x30000, 0x3134a],
  [0x31350, 0x323af],
  [0x33480, 0x3fffd],
  ...[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16].map((plane) => [plane << 16, (plane << 16) + 0xfffd] as const),
  [0xe1000, 0xefffd],
]);
