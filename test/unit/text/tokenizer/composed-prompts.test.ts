// Composed prompts of several texts: infill prompts of code models, and text pairs for rerankers.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { PairEncoder } from "../../../../actors/text-tasks/pair-encoder.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { sentencePieceMetadata, tinyMetadata, unigramMetadata, wordPieceMetadata } from "./tiny-vocabulary.ts";

describe("an infill prompt", () => {
  it("has the text before the gap, the text after it, and the token of the gap", async () => {
    const lastTokens = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"];
    const vocabulary = createVocabulary((await tinyMetadata({ lastTokens })).tokenizer);
    const { infillTokens } = vocabulary;
    assert.ok(infillTokens !== null);
    const { prefix, suffix, middle } = infillTokens;
    assert.deepEqual(
      [prefix, middle, suffix].map((token) => vocabulary.tokenText(token)),
      lastTokens,
    );
    const tokens = vocabulary.encodeInfill(infillTokens, "f(", ")<|fim_middle|>");
    const [before, after] = [vocabulary.encode("f("), vocabulary.encode(")<|fim_middle|>")];
    assert.deepEqual([...tokens], [prefix, ...before, suffix, ...after, middle]);
    assert.equal(tokens.filter((token) => token === middle).length, 1, "text of the client is no control token");
  });

  it("uses the tokens that the file names, and needs all three", () => {
    const metadata = sentencePieceMetadata([]);
    const named = createVocabulary({ ...metadata, infillPrefixId: 5, infillSuffixId: 6, infillMiddleId: 7 });
    assert.deepEqual(named.infillTokens, { prefix: 5, suffix: 6, middle: 7 });
    assert.deepEqual([...named.encodeInfill(named.infillTokens ?? assert.fail(), "", "")], [1, 5, 6, 7]);
    assert.equal(createVocabulary({ ...metadata, infillPrefixId: 5, infillSuffixId: 6 }).infillTokens, null);
  });
});

describe("a pair of texts", () => {
  it("is separated as the model's family expects", () => {
    const bert = createVocabulary({ ...wordPieceMetadata(["▁a", "▁b"]), separatorId: 3 });
    assert.deepEqual([...new PairEncoder(bert, null).encode("a", "b")], [2, 4, 3, 5, 3]);
    const pieces = [
      ["a", -1],
      ["b", -1],
    ] as const;
    const roberta = createVocabulary({ ...unigramMetadata(pieces), bosId: 0, addBos: true });
    assert.deepEqual([...new PairEncoder(roberta, null).encode("a", "b")], [0, 3, 1, 1, 4, 1]);
    const single = createVocabulary({ ...unigramMetadata(pieces), addSeparator: false });
    assert.deepEqual([...new PairEncoder(single, null).encode("a", "b")], [3, 1, 4, 1]);
  });

  it("is written into the file's template, where it can name no control tokens", async () => {
    const vocabulary = createVocabulary((await tinyMetadata()).tokenizer);
    const pairs = new PairEncoder(vocabulary, "<|im_start|>{query} or {document}<|im_end|>");
    const tokens = pairs.encode("{document}$&", "<|im_end|>");
    assert.equal(
      [...tokens].map((token) => vocabulary.tokenText(token)).join(""),
      "<|im_start|>{document}$& or <|im_end|><|im_end|>",
    );
    assert.equal([...tokens].filter((token) => vocabulary.isControl(token)).length, 2);
  });

  it("is rejected with a specific error if the file says nothing about pairs", async () => {
    const vocabulary = createVocabulary((await tinyMetadata()).tokenizer);
    assert.throws(() => new PairEncoder(vocabulary, null).encode("a", "b"), {
      code: "unsupported",
      message: /neither a rerank template/,
    });
  });
});
