// Escapes: maps the letter after a backslash to its characters, such as \d to the digits. Also defines other character sets for
// the parser. Used by parse.ts. No side effects.
import { type CharSet, charSet, charsOf, complement, digitChars, union } from "./char-set.ts";

const wordChars = union(
  charsOf("_"),
  charSet([
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x61, 0x7a],
  ]),
);
const spaceChars = union(
  charsOf("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"),
  charSet([[0x2000, 0x200a]]),
);
export const latinChars = charSet([[0, 0x24f]]);
export const lineEnds = charsOf("\n\r\u2028\u2029");
export const escapedSets: ReadonlyMap<string, CharSet> = new Map([
  ["d", digitChars],
  ["D", complement(digitChars)],
  ["w", wordChars],
  ["W", complement(wordChars)],
  ["s", spaceChars],
  ["S", complement(spaceChars)],
]);
export const controls: ReadonlyMap<string, string> = new Map([
  ["t", "\t"],
  ["n", "\n"],
  ["v", "\v"],
  ["f", "\f"],
  ["r", "\r"],
  ["0", "\0"],
]);
