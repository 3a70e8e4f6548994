// Masked vocabulary: what a grammar thread sees of a model's vocabulary: the bytes of text tokens and the end-of-generation
// tokens, but no structural tokens.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MaskedVocabulary } from "../../../../engines/decoding/grammar/thread/masked-vocabulary.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { maskOf } from "../sampler/fixtures.ts";
import { endToken, firstPiece, sentencePieces, withSentencePieceFile } from "./sentence-piece-file.ts";

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text));
const pieceToken = (text: string) => firstPiece + sentencePieces.indexOf(text);

function tokensIn(mask: Int32Array): number[] {
  return Array.from({ length: 32 * mask.length }, (_, token) => token).filter(
    (token) => (mask[token >> 5]! >> (token & 31)) & 1,
  );
}

describe("a grammar thread's vocabulary", () => {
  it("has the bytes of text, of byte tokens and of user-defined ones, and none of control tokens", async () => {
    await withSentencePieceFile(async (path) => {
      const { pieces } = await MaskedVocabulary.read(path, 1000, [endToken]);
      assert.equal(pieces.length, firstPiece + sentencePieces.length);
      for (const control of [0, 1, 2]) assert.equal(pieces[control]!.length, 0);
      assert.deepEqual(new Uint8Array(pieces[3 + 0xe5]!), Uint8Array.of(0xe5));
      assert.deepEqual(new Uint8Array(pieces[pieceToken("▁名前")]!), bytesOf(" 名前"));
      assert.deepEqual(new Uint8Array(pieces[pieceToken("</tool>")]!), bytesOf("</tool>"));
    });
  });

  it("encodes text as a continuation, without a leading space", async () => {
    await withSentencePieceFile(async (path) => {
      const vocabulary = await MaskedVocabulary.read(path, 1000, [endToken]);
      assert.deepEqual([...vocabulary.encode("ab")], [pieceToken("ab")]);
      assert.deepEqual([...vocabulary.encode(" ab")], [pieceToken("▁ab")]);
      assert.deepEqual([...vocabulary.encode("")], []);
    });
  });

  it("allows text and ends only, within the model's logits", async () => {
    const path = await tinyModel();
    const vocabulary = await MaskedVocabulary.read(path, 300, [2, 400]);
    assert.equal(vocabulary.pieces.length, 300);
    assert.deepEqual(vocabulary.endTokens, [2]);
    assert.deepEqual(tokensIn(vocabulary.ends), [2]);
    const target = new Int32Array(12);
    vocabulary.restrict(new Int32Array(10).fill(-1), target);
    assert.deepEqual(
      tokensIn(target),
      Array.from({ length: 300 }, (_, token) => token).filter((token) => token >= 2),
    );
  });

  it("knows whether a mask allows a longer token", async () => {
    await withSentencePieceFile(async (path) => {
      const vocabulary = await MaskedVocabulary.read(path, 1000, [endToken]);
      const size = vocabulary.pieces.length;
      const [a, ab] = [pieceToken("a"), pieceToken("ab")];
      assert.equal(vocabulary.allowsLonger(maskOf(size, [a, ab]), a), true);
      assert.equal(vocabulary.allowsLonger(maskOf(size, [a, ab]), ab), false);
      assert.equal(vocabulary.allowsLonger(maskOf(size, [a, endToken, 31 + 3]), a), false);
      assert.equal(vocabulary.allowsLonger(maskOf(size, []), a), false);
    });
  });

  it("reads shown control tokens as the text of their names, and encodes them from it", async () => {
    const vocabulary = (await MaskedVocabulary.read(await tinyModel(), 512, [2])).showing([1, 2]);
    assert.equal(Buffer.from(vocabulary.pieces[1]!).toString(), "<|im_start|>");
    assert.equal(vocabulary.pieces[0]!.length, 0);
    assert.equal(vocabulary.pieces[2]!.length, 0, "an end of generation stays one");
    const [first, ...others] = vocabulary.encode("<|im_start|>a<|im_end|>");
    assert.equal(first, 1);
    assert.ok(others.length > 1 && others.every((token) => token > 2));
    const target = new Int32Array(16);
    vocabulary.restrict(new Int32Array(16).fill(-1), target);
    assert.deepEqual(tokensIn(target).slice(0, 3), [1, 2, 3]);
  });

  it("holds back an end of text that may become a text with its own token", async () => {
    const plain = await MaskedVocabulary.read(await tinyModel(), 512, [2]);
    const shown = plain.showing([1]);
    assert.equal(plain.settled("say <|im"), "say <|im");
    assert.equal(shown.settled("say <|im"), "say ");
    assert.equal(shown.settled("say <|im_start|>"), "say <|im_start|>");
    await withSentencePieceFile(async (path) => {
      const vocabulary = await MaskedVocabulary.read(path, 1000, [endToken]);
      assert.equal(vocabulary.settled("ab</to"), "ab", "</tool> is the file's own such text");
    });
  });
});
