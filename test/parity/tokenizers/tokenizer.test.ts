import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import { llamaEngine, type NativeModel } from "../../../engines/llama/engine.ts";
import { createVocabulary, type Vocabulary, vocabularyProbes } from "../../../engines/text/tokenizer/vocabulary.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";

/** GGUF file to compare on instead of the default, such as one with a real vocabulary (environment variable TOKENIZER_MODEL). */
const givenModel = process.env.TOKENIZER_MODEL;

const text = fc
  .array(
    fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 10 }),
      fc.constantFrom(
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "123",
        "½",
        "e\u0301",
        "世界",
        "가나",
        "\u3000",
        "\u00a0",
        "😀",
        "!?",
      ),
      fc.constantFrom("the", " quick", "HTTPServer", "foo_bar", "<|im_end|>", "<|im_start|>", "</s>"),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(""));

describe("the generation place's vocabulary and the engine's own tokenizer", () => {
  let model: NativeModel;
  let vocabulary: Vocabulary;

  before(async () => {
    const path = givenModel ?? (await tinyModel());
    vocabulary = createVocabulary((await readModelMetadata(path)).tokenizer);
    model = await llamaEngine.load(specOf(path, { maxSequences: 1, maxModelLength: 64 }), () => {});
  });

  after(() => model.dispose());

  it("agree on the probes", () => {
    for (const probe of vocabularyProbes) assert.deepEqual(vocabulary.encode(probe), model.tokenize(probe), probe);
  });

  it("agree on any text", () => {
    fc.assert(
      fc.property(text, (sample) => assert.deepEqual(vocabulary.encode(sample), model.tokenize(sample))),
      { numRuns: 1_000 },
    );
  });

  it("agree on the size of the vocabulary", () => {
    assert.equal(vocabulary.size, model.card.vocabSize);
  });
});
