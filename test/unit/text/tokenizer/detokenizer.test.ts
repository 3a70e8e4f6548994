import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import { Detokenizer } from "../../../../engines/text/tokenizer/detokenizer.ts";
import { createVocabulary, type Vocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { sentencePieceMetadata, tinyMetadata } from "./tiny-vocabulary.ts";

const firstByteToken = 3; // In both vocabularies, three control tokens precede the 256 byte tokens.

function push(detokenizer: Detokenizer, bytes: Iterable<number>): string[] {
  return [...bytes].map((byte) => detokenizer.push(firstByteToken + byte));
}

describe("detokenizer", () => {
  let vocabulary: Vocabulary;
  before(async () => {
    vocabulary = createVocabulary((await tinyMetadata()).tokenizer);
  });

  it("emits a character with the token that completes it", () => {
    const detokenizer = new Detokenizer(vocabulary, null);
    assert.deepEqual(push(detokenizer, Buffer.from("é😀!")), ["", "é", "", "", "", "😀", "!"]);
    assert.equal(detokenizer.flush(), "");
  });

  it("emits U+FFFD for an incomplete character", () => {
    const detokenizer = new Detokenizer(vocabulary, null);
    push(detokenizer, Buffer.from("😀").subarray(0, 3));
    assert.equal(detokenizer.flush(), "\ufffd");
    assert.equal(detokenizer.flush(), "");
  });

  it("does not wait for a character that cannot become valid", () => {
    const detokenizer = new Detokenizer(vocabulary, null);
    assert.deepEqual(push(detokenizer, [0xe2, 0x41, 0xc0, 0xed, 0xa0]), ["", "\ufffdA", "\ufffd", "", "\ufffd\ufffd"]);
  });

  it("equals a decoder of the whole text, for any bytes", () => {
    const lively = fc.constantFrom(
      0x41,
      0x80,
      0x8f,
      0x90,
      0x9f,
      0xa0,
      0xbf,
      0xc1,
      0xc2,
      0xe0,
      0xe2,
      0xed,
      0xef,
      0xf0,
      0xf4,
      0xf5,
    );
    const bytes = fc.array(fc.oneof(lively, fc.nat({ max: 255 })), { maxLength: 20 });
    fc.assert(
      fc.property(bytes, (sequence) => {
        const detokenizer = new Detokenizer(vocabulary, null);
        const text = push(detokenizer, sequence).join("") + detokenizer.flush();
        assert.equal(text, new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(sequence)));
      }),
      { numRuns: 2_000 },
    );
  });

  it("restores any encoded text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        const detokenizer = new Detokenizer(vocabulary, null);
        const tokens = [...vocabulary.encode(text)];
        assert.equal(tokens.map((token) => detokenizer.push(token)).join("") + detokenizer.flush(), text);
      }),
    );
  });

  it("emits nothing for control tokens", () => {
    const detokenizer = new Detokenizer(vocabulary, null);
    assert.equal(vocabulary.controlTokens.map((token) => detokenizer.push(token)).join(""), "");
  });

  it("removes the space that SentencePiece adds at the start of a text, and no other", () => {
    const spaced = createVocabulary(
      sentencePieceMetadata([
        ["\u2581", -1],
        ["a", -2],
        ["\u2581a", -3],
      ]),
    );
    const decode = (previous: number | null, text: string) => {
      const detokenizer = new Detokenizer(spaced, previous);
      return [...spaced.encode(text)].map((token) => detokenizer.push(token)).join("");
    };
    const beginOfSequence = 1;
    const letter = spaced.encode("a").at(-1)!;
    assert.equal(decode(null, "a a"), "a a");
    assert.equal(decode(beginOfSequence, " a"), " a");
    assert.equal(decode(letter, "a"), " a");
  });

  it("emits the names of shown control tokens, in their positions", async () => {
    const [first, second] = vocabulary.controlTokens as [number, number];
    const shown = new Detokenizer(vocabulary, null, new Set([second]));
    const word = [...vocabulary.encode("hi")];
    const text = [...word, first, second, ...word].map((token) => shown.push(token)).join("");
    assert.equal(text, `hi${vocabulary.tokenText(second)}hi`);
  });

  it("drops a character that a shown token cuts off, and removes the added space after the token", () => {
    const pieces = [
      ["<tool>", 0],
      ["▁ab", 0],
    ] as const;
    const metadata = sentencePieceMetadata(pieces);
    const [tool, ab] = [metadata.tokens.indexOf("<tool>"), metadata.tokens.indexOf("▁ab")];
    const types = metadata.types?.map((type, token) => (token === tool ? 3 : type)) ?? null;
    const spaced = createVocabulary({ ...metadata, types });
    const shown = new Detokenizer(spaced, ab, new Set([tool]));
    const half = metadata.tokens.indexOf("<0xE5>");
    assert.deepEqual(
      [ab, half, tool, ab, ab].map((token) => shown.push(token)),
      [" ab", "", "\ufffd<tool>", "ab", " ab"],
    );
  });
});
