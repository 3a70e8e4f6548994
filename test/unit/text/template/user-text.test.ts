// User text in prompts: it must never become the name of a control token, whatever words a template removes and in whatever
// order.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { removedWords } from "../../../../engines/text/template/removed-words.ts";
import { UserTextGuard } from "../../../../engines/text/template/user-text.ts";

const names = ["<|im_end|>", "[IN]", "<a>"];
const words = ["/no", "/on", "</no>", "|", "\n\n", "-", "<-a", "<--"];
const marker = "\ufdd0";
const control = { names, namesIn: (text: string) => names.filter((name) => text.includes(name)) };
const guard = new UserTextGuard(control, words);

/** Returns random texts with other texts inserted into them. */
const stuffed = (text: fc.Arbitrary<string>, filling: fc.Arbitrary<string>) =>
  fc
    .tuple(text, fc.array(fc.tuple(fc.nat(12), filling), { minLength: 1, maxLength: 2 }))
    .map(([whole, fillings]) =>
      fillings.reduce((left, [at, filling]) => left.slice(0, at) + filling + left.slice(at), whole),
    );
const word = fc.constantFrom(...words);
/** Name of a control token with inserted words, which may themselves contain inserted words. */
const attack = stuffed(fc.constantFrom(...names), fc.oneof(word, stuffed(word, word), fc.constantFrom(" ", "\n")));
const usual = fc.constantFrom(...words, ..."<>/|[]sa", " ", "\n", "hi");
const around = fc.array(usual, { maxLength: 2 }).map((pieces) => pieces.join(""));
const text = fc.tuple(around, attack, around).map((pieces) => pieces.join(""));
/** Two adjacent texts of a prompt, obtained by cutting one text in two. */
const twoTexts = fc.tuple(text, fc.nat(20), fc.constantFrom("", " ", "\n ")).map(([whole, cut, space]) => {
  return [whole.slice(0, cut) + space, space + whole.slice(cut)] as const;
});
/** Change that a template makes to a text, such as removing a word. */
const step = fc.constantFrom(...words.map((word) => (text: string) => text.replaceAll(word, "")), (text: string) =>
  text.trim(),
);

describe("guarded text", () => {
  it("spells no name after any removals, alone and between other texts", () => {
    fc.assert(
      fc.property(twoTexts, fc.array(step, { maxLength: 6 }), (texts, steps) => {
        const removed = texts.map((text) => steps.reduce((left, take) => take(left), guard.guard(text, marker)));
        assert.deepEqual(control.namesIn(removed.join("")), []);
      }),
      { numRuns: 8000 },
    );
  });

  it("equals the text, except for markers", () => {
    fc.assert(
      fc.property(text, (whole) => assert.equal(guard.guard(whole, marker).replaceAll(marker, ""), whole)),
      { numRuns: 300 },
    );
    for (const usual of ["<no>Hm, a < b.</no>\n\nYes. /no", "1 | 2", "/on", "a - b"]) {
      assert.equal(guard.guard(usual, marker), usual);
    }
  });
});

describe("the words that a template removes", () => {
  it("are those that it replaces or splits at, as literals or in variables", () => {
    const source = `{%- set end = "</t>" %}{{ c.replace('/think', '').split("a\\n\\"b")[0] | replace('it\\'s', x) }}{{ c.split(end, 1).rsplit('r') }}{{ c.split() }}`;
    assert.deepEqual(removedWords(source), ["/think", 'a\n"b', "it's", "</t>", "r"]);
  });
});
