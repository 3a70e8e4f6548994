import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { accepts, both, lengths, not, ofLength } from "../../../../runtime/regex/automaton.ts";
import { charSet, utf8Sequences } from "../../../../runtime/regex/char-set.ts";
import { automatonOf } from "../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import { RegexProblem } from "../../../../runtime/regex/syntax.ts";
import { ofTexts } from "../../../../runtime/regex/texts.ts";

function anywhere(pattern: string) {
  return automatonOf(parseRegex(pattern), "anywhere");
}

describe("a regular expression as an automaton", () => {
  const patterns = [
    "^a+b?$",
    "b",
    "^(ab|ba)*$",
    "a{2,3}",
    "^[^a]",
    "(^a|b$)",
    "^(?=.*b)(?!.*aa)[ab]{2,5}$",
    "^$",
    "a.b",
    "\\bc".slice(2),
    "^(?:a|b|c){0,4}c$",
    "[a-c]+?b$",
  ];
  for (const pattern of patterns) {
    it(`agrees with the runtime on ${pattern}`, () => {
      const automaton = anywhere(pattern);
      const runtime = new RegExp(pattern, "u");
      fc.assert(
        fc.property(fc.string({ unit: fc.constantFrom("a", "b", "c", "\n", "é"), maxLength: 7 }), (text) => {
          assert.equal(accepts(automaton, text), runtime.test(text));
        }),
        { numRuns: 150 },
      );
    });
  }

  it("is combined with others: intersection, complement, length", () => {
    const words = both(anywhere("^[a-z]+$"), both(not(ofTexts(["abc"])), ofLength(2, 3)));
    assert.deepEqual(
      ["abd", "abc", "a", "ab", "abcd", "AB"].map((text) => accepts(words, text)),
      [true, false, false, true, false, false],
    );
    assert.deepEqual(lengths(words), { min: 2, max: 3 });
  });

  it("may match texts of unbounded length", () => {
    assert.deepEqual(lengths(anywhere("^ab*$")), { min: 1, max: Number.POSITIVE_INFINITY });
  });

  it("stays small, or is refused, if subsets of states explode", () => {
    assert.throws(() => anywhere(`^(a|b)*a${"(a|b)".repeat(14)}$`), RegexProblem);
  });

  for (const [pattern, construct] of [
    ["(a)\\1", "backreference"],
    ["(?<=a)b", "lookbehind"],
    ["a(?=b)", "lookahead"],
    ["\\ba", "word boundary"],
    ["a{1,100000}", "bounds of repetitions"],
    ["(?i:a)", "group"],
    ["(a", 'missing ")"'],
    ["a)", 'unmatched ")"'],
    ["*a", "nothing to repeat"],
    ["[b-a]", "out of order"],
    ["\\q", "no escape"],
    ["\\p{Nonsense}", "no character property"],
  ] as const) {
    it(`refuses ${pattern} and names the ${construct}`, () => {
      assert.throws(
        () => parseRegex(pattern),
        (thrown) => thrown instanceof RegexProblem && thrown.message.includes(construct),
      );
    });
  }
});

describe("the UTF-8 of a set of characters", () => {
  it("covers each character of the set and no other", () => {
    const bounds = fc.tuple(fc.integer({ min: 0x80, max: 0xd7ff }), fc.integer({ min: 0, max: 0x3000 }));
    fc.assert(
      fc.property(bounds, fc.integer({ min: 0x80, max: 0xffff }), ([lo, length], code) => {
        const hi = Math.min(0xd7ff, lo + length);
        const bytes = Buffer.from(String.fromCodePoint(code));
        const isCovered = utf8Sequences(charSet([[lo, hi]])).some(
          (ranges) =>
            ranges.length === bytes.length &&
            ranges.every(([from, to], i) => from <= (bytes[i] as number) && (bytes[i] as number) <= to),
        );
        fc.pre(code < 0xd800 || code > 0xdfff);
        assert.equal(isCovered, lo <= code && code <= hi);
      }),
      { numRuns: 500 },
    );
  });
});
