// Other cases of letters, for patterns that ignore case. All pairs are computed once with JavaScript's case conversion, because
// converting each letter takes too long for large classes. Used by char-set.ts.

/** Pairs of a character and its other case, sorted by the character. */
let pairs: Int32Array | null = null;

/** Returns the other cases of the characters from `lo` to `hi`. */
export function otherCases(lo: number, hi: number): Int32Array {
  pairs ??= readPairs();
  const from = firstAt(pairs, lo);
  const others = new Int32Array(firstAt(pairs, hi + 1) - from);
  for (let i = 0; i < others.length; i++) others[i] = pairs[2 * (from + i) + 1] as number;
  return others;
}

/** Returns the index of the first pair whose character is at or above `char`. */
function firstAt(sorted: Int32Array, char: number): number {
  let from = 0;
  let to = sorted.length >> 1;
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((sorted[2 * middle] as number) < char) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Last code point of plane 1. Letters in higher planes have only one case. */
const lastCased = 0x1ffff;

function readPairs(): Int32Array {
  const found: number[] = [];
  for (let char = 0; char <= lastCased; char++) {
    if (char === 0xd800) char = 0xe000;
    const text = String.fromCodePoint(char);
    for (const other of [text.toLowerCase(), text.toUpperCase()]) {
      const code = other.codePointAt(0) as number;
      if (code !== char && other.length === (code > 0xffff ? 2 : 1)) found.push(char, code);
    }
  }
  return Int32Array.from(found);
}
