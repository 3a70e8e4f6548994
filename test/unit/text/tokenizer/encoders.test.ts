import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { FixedTokens } from "../../../../engines/text/tokenizer/fixed-tokens.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { compileCharactersMap } from "../../../fixtures/text/characters-map.ts";
import { sentencePieceMetadata, tinyMetadata, unigramMetadata, wordPieceMetadata } from "./tiny-vocabulary.ts";

function names(tokenizer: TokenizerMetadata, text: string): string[] {
  const vocabulary = createVocabulary(tokenizer);
  return [...vocabulary.encode(text)].map((token) => vocabulary.tokenText(token));
}

describe("WordPiece vocabulary", () => {
  const tokenizer = wordPieceMetadata([
    "\u2581hello",
    "\u2581wor",
    "ld",
    "\u2581!",
    "\u2581世",
    "\u2581Éa",
    "\u2581éa",
    "\u2581ea",
  ]);

  it("chooses the longest pieces of each lower-cased word", () => {
    assert.deepEqual(names(tokenizer, "Hello\t world!"), [" hello", " wor", "ld", " !"]);
    assert.deepEqual(names(tokenizer, "strange hello"), ["[UNK]", " hello"]);
  });

  it("splits off ideographs, and drops invisible characters", () => {
    assert.deepEqual(names(tokenizer, "世世hel\u200blo"), [" 世", " 世", " hello"]);
  });

  it("drops accents and case as the file says", () => {
    assert.deepEqual(names(tokenizer, "Éa"), [" ea"]);
    assert.deepEqual(names({ ...tokenizer, stripsAccents: false }, "Éa"), [" éa"]);
    assert.deepEqual(names({ ...tokenizer, lowersCase: false, stripsAccents: true }, "Éa"), ["[UNK]"]);
    assert.deepEqual(names({ ...tokenizer, lowersCase: false }, "Éa"), [" Éa"]);
  });

  it("makes one token of an unknown word of any length", () => {
    const vocabulary = createVocabulary(tokenizer);
    assert.deepEqual([...vocabulary.encode("x".repeat(100_000))], [1]);
    assert.equal(vocabulary.longestPieceBytes, 1024);
  });
});

describe("Unigram vocabulary", () => {
  const tokenizer = unigramMetadata([
    ["\u2581", -2],
    ["a", -3],
    ["b", -3],
    ["ab", -5],
    ["ba", -4],
    ["(", -9],
  ]);

  it("chooses the pieces with the highest sum of scores", () => {
    assert.deepEqual(names(tokenizer, "aba"), ["a", "ba"]);
    assert.deepEqual(names(tokenizer, "ab a"), ["ab", " ", "a"]);
  });

  it("makes one token of unknown neighbours", () => {
    assert.deepEqual(names(tokenizer, "xéxab"), ["<unk>", "ab"]);
  });

  it("writes spaces as the file demands", () => {
    assert.deepEqual(names(tokenizer, "  a "), [" ", " ", "a", " "]);
    assert.deepEqual(names({ ...tokenizer, addSpacePrefix: true }, "a"), [" ", "a"]);
    assert.deepEqual(names({ ...tokenizer, removesExtraSpaces: true }, "  a   b "), [" ", "a", " ", "b"]);
    assert.deepEqual(names({ ...tokenizer, removesExtraSpaces: true }, "   "), []);
  });

  it("applies the file's characters map, longest match first, but not at the start of a user-defined token", () => {
    const charactersMap = compileCharactersMap({ x: "a", xx: "b", "…": "ab", "<": "(" });
    assert.deepEqual(names({ ...tokenizer, charactersMap }, "xxx…<"), ["ba", "ab", "("]);
    const types = [...(tokenizer.types ?? []), 4];
    const kept = {
      ...tokenizer,
      charactersMap,
      tokens: [...tokenizer.tokens, "<b>"],
      types,
      scores: [...(tokenizer.scores ?? []), 0],
    };
    assert.deepEqual(names(kept, "x<b>(<"), ["a", "<b>", "(", "<unk>"]);
  });

  it("ends with EOS, and does not start with BOS", () => {
    const vocabulary = createVocabulary(tokenizer);
    assert.deepEqual([...vocabulary.encodeWhole("a")], [4, 1]);
  });

  it("refuses an invalid map, and one with an index out of range", () => {
    const encode = (charactersMap: readonly number[]) => names({ ...tokenizer, charactersMap }, "x");
    assert.throws(() => encode([1, 2, 3]), /precompiled_charsmap.*3 bytes/);
    assert.throws(() => encode([4, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0]), /precompiled_charsmap.*node \d+ of 1/);
  });

  it("replaces a bounded number of bytes at once, even if the map has a cycle", () => {
    const replaced = (count: number) => {
      const text = "x".repeat(count);
      return names({ ...tokenizer, charactersMap: compileCharactersMap({ [text]: "a" }) }, text);
    };
    assert.deepEqual(replaced(256), ["a"]);
    assert.deepEqual(replaced(257), ["<unk>"]);
  });

  it("refuses a map that makes a text many times longer", () => {
    const growing = (count: number) => compileCharactersMap({ x: "a".repeat(count) });
    assert.equal(names({ ...tokenizer, charactersMap: growing(32) }, "x").length, 32);
    assert.throws(
      () => names({ ...tokenizer, charactersMap: growing(33) }, "x"),
      /precompiled_charsmap.*1 bytes into 33/,
    );
  });

  it("has an unknown token even if its file names none", () => {
    const two = { ...tokenizer, unknownId: null, tokens: ["<unk>", "a"], types: [2, 1], scores: [0, -1], eosId: null };
    assert.deepEqual(names(two, "xa"), ["<unk>", "a"]);
  });

  it("refuses a file without scores", () => {
    assert.throws(() => createVocabulary({ ...tokenizer, scores: null }), /"t5".*tokenizer\.ggml\.scores/);
  });
});

describe("fixed tokens", () => {
  const tokens = ["\n\n", "\n\n\n", "ab", "abc", "cd"].map((text, id) => [text, id] as const);

  it("are found longest first over the whole text, then shorter ones in the rest", () => {
    const fixed = new FixedTokens(tokens);
    assert.deepEqual(fixed.split("\n\n\n\n\n\n"), [1, 1]);
    assert.deepEqual(fixed.split("\n\n\n\n\n"), [1, 0]);
    assert.deepEqual(fixed.split("xabcd"), ["x", 3, "d"]);
    assert.deepEqual(fixed.split("abd"), [2, "d"]);
    assert.deepEqual(
      fixed.presentIn("abcd").map(([text]) => text),
      ["abc", "ab", "cd"],
    );
  });

  it("give way to a longer one that starts later", () => {
    const fixed = new FixedTokens([
      ["aab", 0],
      ["ab", 1],
      ["bcde", 2],
      ["a", 3],
    ]);
    assert.deepEqual(fixed.split("aabcde"), [3, 3, 2]);
  });

  it("absorb white space before and after them", () => {
    const fixed = new FixedTokens(tokens, { before: (text) => text === "ab", after: (text) => text === "cd" });
    assert.deepEqual(fixed.split("x \t\nab y cd \n z"), ["x", 2, " y ", 4, "z"]);
  });
});

describe("a long text of one character", { timeout: 20_000 }, () => {
  const characters = ["a", " ", "\n", "7", "<", "😀"];

  it("is encoded by every kind of vocabulary in linear time", async () => {
    const pieces = characters.flatMap((one) => [1, 2, 3, 4, 8].map((count) => [one.repeat(count), -count] as const));
    const bytePairs = (await tinyMetadata()).tokenizer;
    const merges = pieces.flatMap(([piece]) => (piece.includes(" ") ? [] : [`${piece} ${piece}`]));
    const kinds = [
      bytePairs,
      { ...bytePairs, pre: "llama-bpe" },
      { ...bytePairs, pre: "tekken" },
      { ...bytePairs, model: "gemma4", merges, tokens: pieces.map(([piece]) => piece), types: null },
      sentencePieceMetadata(pieces),
      unigramMetadata(pieces),
      wordPieceMetadata(pieces.map(([piece]) => piece)),
      {
        ...sentencePieceMetadata(pieces),
        types: sentencePieceMetadata(pieces).tokens.map((_, id) => (id < 259 ? 1 : 4)),
      },
    ];
    for (const kind of kinds) {
      const vocabulary = createVocabulary(kind);
      for (const character of characters) {
        const text = character.repeat(50_000);
        assert.ok(vocabulary.encode(text).length <= 4 * text.length);
      }
    }
  });
});
