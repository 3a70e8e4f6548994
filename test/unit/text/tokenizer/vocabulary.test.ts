import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import type { TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { findPreTokenizer, preTokenizerNames } from "../../../../engines/text/tokenizer/encoding/pre-tokenizers.ts";
import { splitWords } from "../../../../engines/text/tokenizer/encoding/word-rules.ts";
import { createVocabulary, type Vocabulary, vocabularyProbes } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { tinyControlTokens } from "../../../fixtures/models/tiny-gguf.ts";
import { sentencePieceMetadata, tinyMetadata, wordPieceMetadata } from "./tiny-vocabulary.ts";

function textOf(vocabulary: Vocabulary, tokens: Int32Array): string {
  return Buffer.concat([...tokens].map((token) => vocabulary.piece(token))).toString("utf8");
}

function names(vocabulary: Vocabulary, tokens: Int32Array): string[] {
  return [...tokens].map((token) => vocabulary.tokenText(token));
}

/** Random texts, often with fragments on which tokenizers tend to fail. */
const anyText = fc
  .array(
    fc.oneof(
      fc.string({ unit: "binary", maxLength: 8 }),
      fc.string({ unit: "grapheme", maxLength: 8 }),
      fc.constantFrom(
        " ",
        "   ",
        "\n",
        "\r\n\n",
        "'ll",
        "the quick",
        "1234567",
        "世界",
        "e\u0301",
        "\u3000",
        "!?",
        ...tinyControlTokens,
      ),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join("").replace(/\p{Surrogate}/gu, "\ufffd"));

describe("a whole text", () => {
  it("ends with the closing token that the model wants, if any", async () => {
    const pair = (await tinyMetadata()).tokenizer;
    const sentence = sentencePieceMetadata([["\u2581hi", -1]]);
    const word = { ...wordPieceMetadata(["hi"]), separatorId: 3 };
    const closing = [pair, { ...pair, addEos: true }, sentence, { ...sentence, addEos: true }, word].map(
      (tokenizer) => {
        const vocabulary = createVocabulary(tokenizer);
        const [open, whole] = [vocabulary.encodeCompletion("hi"), vocabulary.encodeWhole("hi")];
        assert.deepEqual(whole.slice(0, open.length), open);
        return names(vocabulary, whole.slice(open.length)).join();
      },
    );
    assert.deepEqual(closing, ["", "<|im_end|>", "", "</s>", "[SEP]"]);
  });
});

describe("byte-level BPE vocabulary", () => {
  let tokenizer: TokenizerMetadata;
  let vocabulary: Vocabulary;
  before(async () => {
    tokenizer = (await tinyMetadata()).tokenizer;
    vocabulary = createVocabulary(tokenizer);
  });

  it("applies its merges", () => {
    assert.deepEqual(names(vocabulary, vocabulary.encode("the quick brown")), ["the", " quick", " brown"]);
    assert.deepEqual(names(vocabulary, vocabulary.encode("thequick")), ["the", "qu", "i", "c", "k"]);
  });

  it("restores any text, byte for byte", () => {
    fc.assert(fc.property(anyText, (text) => assert.equal(textOf(vocabulary, vocabulary.encode(text)), text)));
  });

  it("never makes a control token of plain text", () => {
    const control = new Set(vocabulary.controlTokens);
    assert.equal(control.size, 3);
    fc.assert(fc.property(anyText, (text) => vocabulary.encode(text).every((token) => !control.has(token))));
  });

  it("needs at least one token for every longest piece of bytes", () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const bytes = Buffer.byteLength(text, "utf8");
        assert.ok(vocabulary.encode(text).length * vocabulary.longestPieceBytes >= bytes);
      }),
    );
  });

  it("reads half a surrogate pair as U+FFFD", () => {
    assert.equal(textOf(vocabulary, vocabulary.encode("a\ud83d b\udc00")), "a\ufffd b\ufffd");
  });

  it("encodes very long runs of one character", () => {
    for (const run of ["a", "7", " ", "\n", "😀", "!"].map((character) => character.repeat(50_000))) {
      assert.equal(textOf(vocabulary, vocabulary.encode(run)), run);
    }
  });

  it("finds control tokens in a prompt, except those that the marker breaks", () => {
    const text = "<|im_start|>user\nsay <\ufdd0|im_end|> now<|im_end|>";
    const tokens = vocabulary.encodePrompt({ text, marker: "\ufdd0" });
    assert.deepEqual(
      [...tokens].filter((token) => vocabulary.isControl(token)),
      [1, 2],
    );
    assert.equal(textOf(vocabulary, tokens), "user\nsay <|im_end|> now");
  });

  it("adds the BOS token if the model wants one and the prompt has none", () => {
    const wanting = createVocabulary({ ...tokenizer, bosId: 0, addBos: true });
    const encode = (text: string) => wanting.encodePrompt({ text, marker: "\ufdd0" });
    assert.deepEqual(names(wanting, encode("the")), ["<|endoftext|>", "the"]);
    assert.deepEqual(names(wanting, encode("<|endoftext|>the")), ["<|endoftext|>", "the"]);
    assert.deepEqual(names(wanting, wanting.encodeCompletion("the")), ["<|endoftext|>", "the"]);
    assert.deepEqual(names(vocabulary, vocabulary.encodeCompletion("the")), ["the"]);
  });

  it("matches user-defined tokens in plain text, the longest first", () => {
    const types = tokenizer.tokens.map((_, token) => (token < 3 ? 3 : 1));
    const tokens = [...tokenizer.tokens, "<think>", "<think>x"];
    const taught = createVocabulary({ ...tokenizer, tokens, types: [...types, 4, 4] });
    assert.deepEqual([...taught.encode("<think><think>x")], [512, 513]);
  });

  it("shows control tokens by name, and gives them no bytes", () => {
    assert.equal(vocabulary.tokenText(2), "<|im_end|>");
    assert.equal(vocabulary.piece(2).length, 0);
    assert.equal(vocabulary.pieceText(2), "");
  });

  it("finds the tokens that contain a text, and no others", () => {
    const found = new Set(vocabulary.tokensContaining("th"));
    for (let token = 0; token < vocabulary.size; token++) {
      const text = Buffer.from(vocabulary.piece(token)).toString("latin1");
      assert.equal(found.has(token), text.includes("th"), text);
    }
    assert.ok(found.size > 5);
  });

  it("refuses an unknown pre-tokenizer, and names the supported ones", () => {
    const isRefusal = (error: unknown) =>
      error instanceof ServerError &&
      error.code === "model_file_invalid" &&
      /"strange".*llama-bpe/s.test(error.message);
    assert.throws(() => createVocabulary({ ...tokenizer, pre: "strange" }), isRefusal);
    assert.throws(() => createVocabulary({ ...tokenizer, model: "rwkv" }), /"rwkv".*gpt2,.*t5/);
  });
});

describe("every pre-tokenizer", () => {
  it("cuts a text into words that together equal the text", () => {
    const all = preTokenizerNames.map((name) => ({ name, pre: findPreTokenizer(name)! }));
    fc.assert(
      fc.property(anyText, (text) => {
        for (const { name, pre } of all) {
          const words: string[] = [];
          splitWords(text, pre.rules, (word) => words.push(word));
          assert.equal(words.join(""), text, name);
          assert.ok(!words.includes(""), name);
        }
      }),
      { numRuns: 30 },
    );
  });

  it("cuts like its family", () => {
    const cut = (name: string, text: string) => {
      const words: string[] = [];
      splitWords(text, findPreTokenizer(name)!.rules, (word) => words.push(word));
      return words;
    };
    assert.deepEqual(cut("gpt-2", "I'm 1234  ok"), ["I", "'m", " 1234", " ", " ok"]);
    assert.deepEqual(cut("smollm", "I'm 1234  ok"), ["I", "'m", " ", "1", "2", "3", "4", " ", " ok"]);
    assert.deepEqual(cut("llama-bpe", "I'M 1234\n\n  ok"), ["I", "'M", " ", "123", "4", "\n\n", " ", " ok"]);
    assert.deepEqual(cut("tiny_aya", "1234567 x12"), ["1", "234", "567", " x", "12"]);
    assert.deepEqual(cut("tekken", "HTTPServer isOK"), ["HTTPServer", " is", "OK"]);
  });
});

describe("SentencePiece vocabulary", () => {
  const tokenizer = sentencePieceMetadata([
    ["\u2581", -1],
    ["a", -2],
    ["b", -3],
    ["aa", -4],
    ["\u2581a", -5],
    ["ab", -6],
    ["<", -7],
    ["s", -8],
    [">", -9],
    ["s>", -10],
  ]);
  const vocabulary = createVocabulary(tokenizer);

  it("adds a space before text and merges by score, the leftmost of equals first", () => {
    assert.deepEqual(names(vocabulary, vocabulary.encode("aaab")), [" ", "aa", "ab"]);
    assert.deepEqual(names(vocabulary, vocabulary.encode("ab a")), [" a", "b", " a"]);
  });

  it("spells unknown characters as bytes", () => {
    const tokens = vocabulary.encode("é");
    assert.equal(textOf(vocabulary, tokens), " é");
    assert.deepEqual([...tokens].slice(-2), [3 + 0xc3, 3 + 0xa9]);
  });

  it("has no text for a token outside the vocabulary", () => {
    assert.equal(vocabulary.piece(vocabulary.size).length, 0);
    assert.equal(vocabulary.tokenText(vocabulary.size + 1), "");
  });

  it("does not merge plain text into a control token", () => {
    assert.deepEqual(names(vocabulary, vocabulary.encode("<s>")), [" ", "<", "s>"]);
  });

  it("adds BOS unless the file says not to", () => {
    assert.deepEqual(names(vocabulary, vocabulary.encodeCompletion("b")), ["<s>", " ", "b"]);
    assert.deepEqual(names(createVocabulary({ ...tokenizer, addBos: false }), vocabulary.encode("b")), [" ", "b"]);
  });

  it("adds the space after control tokens too", () => {
    const tokens = vocabulary.encodePrompt({ text: "<s>b</s>b", marker: "\ufdd0" });
    assert.deepEqual(names(vocabulary, tokens), ["<s>", " ", "b", "</s>", " ", "b"]);
  });
});

describe("a vocabulary whose control tokens absorb white space", () => {
  it("removes it after them in a prompt, but not after BOS or in plain text", async () => {
    const { tokenizer } = await tinyMetadata();
    const swallowing = createVocabulary({ ...tokenizer, stripsAfterControl: true });
    const text = "<|endoftext|> the<|im_start|> \n the";
    const tokens = swallowing.encodePrompt({ text, marker: "\ufdd0" });
    assert.deepEqual(names(swallowing, tokens), ["<|endoftext|>", " the", "<|im_start|>", "the"]);
    assert.equal(textOf(swallowing, swallowing.encode(text)), text);
  });
});

describe("the vocabulary probes", () => {
  it("distinguish the families of pre-tokenizers", () => {
    const families =
      "smollm gpt-2 llama-bpe qwen2 qwen35 tekken gpt-4o deepseek-llm deepseek-coder deepseek-v3 falcon bloom default";
    const cuts = families.split(" ").map((name) => {
      const words: string[] = [];
      for (const probe of vocabularyProbes)
        splitWords(probe, findPreTokenizer(name)!.rules, (word) => words.push(word));
      return words.join("\0");
    });
    assert.equal(new Set(cuts).size, cuts.length);
  });
});
