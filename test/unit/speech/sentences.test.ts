import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { clausesOf } from "../../../engines/speech/voices/phonemes.ts";
import { maxSentenceLength, normalised, sentencesOf } from "../../../engines/speech/voices/sentences.ts";

const english = (text: string) => sentencesOf(normalised(text, "en-us"), "en-us");

describe("the sentences of a text to speak", () => {
  it("end at punctuation marks, not at abbreviations and numbers", () => {
    assert.deepEqual(english("Dr. Smith paid 3.50 euros. Mr. Jones did not! Why?"), [
      "Doctor Smith paid 3.50 euros.",
      "Mister Jones did not!",
      "Why?",
    ]);
  });

  it("have amounts of money and abbreviations written out in English", () => {
    assert.equal(
      normalised("It costs $1, $3.50 or £2 million, e.g. here.", "en-us"),
      "It costs 1 dollar, 3 dollars and 50 cents or 2 million pounds, for example, here.",
    );
    assert.equal(normalised("Das kostet 3 € z.B. hier.", "de"), "Das kostet 3 € z.B. hier.");
  });

  it("end at paragraphs and list items, and contain no Markdown syntax", () => {
    assert.deepEqual(english("# Title\n\nSome **bold** text\n- one\n- two"), [
      "Title",
      "Some bold text",
      "- one",
      "- two",
    ]);
  });

  it("are never longer than the limit, whatever they contain, and keep all words", () => {
    const words = Array.from({ length: 500 }, (_, i) => `word${i}`);
    const parts = english(words.join(" "));
    assert.ok(parts.every((part) => part.length <= maxSentenceLength));
    assert.equal(parts.join(" "), words.join(" "));
    const japanese = sentencesOf("これはとても長い文です、".repeat(40), "ja");
    assert.ok(japanese.slice(0, -1).every((part) => part.length <= maxSentenceLength && part.endsWith("、")));
    const emoji = english(`x${"😀".repeat(1000)}`);
    assert.ok(emoji.every((part) => part.length <= maxSentenceLength && !/[\uD800-\uDBFF]$/.test(part)));
  });

  it("are none if nothing can be spoken", () => {
    for (const text of ["", "   ", "***", "?!…", "\u0000\u200b"]) assert.deepEqual(english(text), []);
  });
});

describe("the clauses of a sentence", () => {
  it("keep their punctuation, and the last one always has some", () => {
    const marks = (text: string) => clausesOf(text).map(({ mark }) => mark);
    assert.deepEqual(marks("Well, this is it: the end, 3.14 really?"), [",", ":", ",", "?"]);
    assert.deepEqual(marks("no mark"), ["."]);
    assert.deepEqual(marks('He said "stop!"'), ["!"]);
    assert.deepEqual(
      clausesOf("at 10:30 or 1,000.5 x").map(({ text }) => text),
      ["at 10:30 or 1,000.5 x"],
    );
  });
});
