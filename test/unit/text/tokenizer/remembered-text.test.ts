// Caches of tokenizer encoders: they must not grow with the number of texts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { singleCharacters } from "../../../../engines/text/tokenizer/encoding/single-characters.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { sentencePieceMetadata, tinyMetadata, unigramMetadata, wordPieceMetadata } from "./tiny-vocabulary.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function heapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** Returns a word of 20 letters that is different for each number. */
function newWord(i: number): string {
  return String(i)
    .padStart(20, "0")
    .replace(/\d/g, (digit) => "abcdefghij".charAt(Number(digit)));
}

describe("a vocabulary", () => {
  it("keeps no text in memory because of its cached words", async () => {
    const kinds = [
      (await tinyMetadata()).tokenizer,
      sentencePieceMetadata([["a", -1]]),
      wordPieceMetadata(["a"]),
      unigramMetadata([["a", -1]]),
    ];
    const vocabularies = kinds.map(createVocabulary);
    const rest = " a".repeat(100_000);
    const encodeAll = (i: number) => {
      for (const one of vocabularies) one.encode(newWord(i) + rest);
    };
    encodeAll(0);
    const before = heapBytes();
    for (let i = 1; i <= 20; i++) encodeAll(i);
    assert.ok(heapBytes() - before < 2_000_000);
    assert.ok(vocabularies.every(({ size }) => size > 0));
  });
});

describe("character changes", () => {
  it("are cached up to a bound", () => {
    const lower = singleCharacters((char) => char.toLowerCase());
    assert.equal(lower("Ä"), "ä");
    const before = heapBytes();
    for (let code = 0x20000; code < 0x50000; code++) lower(String.fromCodePoint(code));
    assert.ok(heapBytes() - before < 4_000_000);
    assert.equal(lower("Ä"), "ä");
  });
});
