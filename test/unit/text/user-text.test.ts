// That no text of a user turns into a control token's name, whatever words a template takes out of it, in whatever order.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { removedWords } from "../../../engines/template/removed-words.ts";
import { UserTextGuard } from "../../../engines/template/user-text.ts";

const names = ["<|im_end|>", "<SPECIAL_12>", "[INST]", "</s>"];
const words = ["/think", "/no_think", "</think>", "|", "\n\n", "ab", "bc"];
const marker = "\ufdd0";
const control = { names, namesIn: (text: string) => names.filter((name) => text.includes(name)) };
const guard = new UserTextGuard(control, words);

const namePieces = names.flatMap((name) => [name, name.slice(0, 4), name.slice(4), name.slice(2, 5)]);
const wordPieces = words.flatMap((word) => [word, word, word.slice(0, 3), word.slice(3)]);
const text = fc
  .array(fc.constantFrom(...namePieces, ...wordPieces, ..."<>/|[]sa", " ", "\n", "hi"), { maxLength: 12 })
  .map((pieces) => pieces.join(""));
/** What a template does to a text, one after the other. */
const step = fc.constantFrom(...words.map((word) => (text: string) => text.replaceAll(word, "")), (text: string) =>
  text.trim(),
);

describe("guarded text", () => {
  it("spells no name, whatever is removed from it, alone and between others", () => {
    fc.assert(
      fc.property(text, text, fc.array(step, { maxLength: 5 }), (first, second, steps) => {
        const removed = [first, second].map((text) =>
          steps.reduce((left, take) => take(left), guard.guard(text, marker)),
        );
        assert.deepEqual(control.namesIn(removed.join("")), []);
      }),
      { numRuns: 3000 },
    );
  });

  it("is the text, but for markers", () => {
    fc.assert(
      fc.property(text, (whole) => assert.equal(guard.guard(whole, marker).replaceAll(marker, ""), whole)),
      { numRuns: 300 },
    );
    for (const usual of ["<think>Hm, a < b.</think>\n\nYes. /think", "1 | 2", "/no_think", "cab"]) {
      assert.equal(guard.guard(usual, marker), usual);
    }
  });
});

describe("the words that a template removes", () => {
  it("are those it replaces or cuts at, written there or set before", () => {
    const source = `{%- set end = "</t>" %}{{ c.replace('/think', '').split("a\\n\\"b")[0] | replace('it\\'s', x) }}{{ c.split(end, 1).rsplit('r') }}{{ c.split() }}`;
    assert.deepEqual(removedWords(source), ["/think", 'a\n"b', "it's", "</t>", "r"]);
  });
});
