import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import { findPreTokenizer, preTokenizerNames } from "../../../engines/text/tokenizer/encoding/pre-tokenizers.ts";
import { createVocabulary, type Vocabulary, vocabularyProbes } from "../../../engines/text/tokenizer/vocabulary.ts";
import { u32 } from "../../fixtures/models/tiny-gguf.ts";
import { NativeVocabulary } from "../../fixtures/text/native-vocabulary.ts";
import { texts } from "../../fixtures/text/texts.ts";
import {
  bytePairFile,
  charactersMapField,
  control,
  flag,
  normal,
  sentencePieceFile,
  unigramFile,
  userDefined,
  type VocabularyFile,
  wordPieceFile,
  writeVocabulary,
} from "../../fixtures/text/vocabularies.ts";

const parts = Object.values(texts).flatMap((text) => text.match(/\s+|\S+\s?/gu) ?? []);

/** Random texts. Some contain invalid UTF-8 or lone surrogates, which become U+FFFD in both tokenizers. */
const anyText = fc
  .array(
    fc.oneof(
      fc.string({ unit: "binary", maxLength: 6 }),
      fc.string({ unit: "grapheme", maxLength: 6 }),
      fc.string({ unit: "binary-ascii", maxLength: 6 }),
      fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes).toString("utf8")),
      fc.constantFrom("\ud83d", "\udc00"),
      { arbitrary: fc.constantFrom(...parts), weight: 5 },
    ),
    { maxLength: 12 },
  )
  .map((pieces) => pieces.join(""));

/** Ranges of code points, including surrogates, in which all characters are treated alike. */
const uniform = [
  [0x3500, 0x9f00],
  [0xad00, 0xf800],
  [0x12000, 0x16000],
  [0x17100, 0x18a00],
] as const;

/** Returns a copy of `file` with more tokens of the type `type`. */
function withTokens(file: VocabularyFile, tokens: readonly string[], type: number): VocabularyFile {
  const added = tokens.filter((token) => !file.tokens.includes(token));
  const types = file.tokens.map((token, id) => (tokens.includes(token) ? type : (file.types?.[id] ?? normal)));
  return { ...file, tokens: [...file.tokens, ...added], types: [...types, ...added.map(() => type)] };
}

/** Returns a copy of `file` without the normal tokens that `isLeftOut` accepts. */
function withoutPieces(file: VocabularyFile, isLeftOut: (piece: string) => boolean): VocabularyFile {
  const fixed = file.types?.length ?? 0;
  const kept = file.tokens.flatMap((token, id) => (id >= fixed && isLeftOut(token) ? [] : [id]));
  const scores = kept.map((id) => file.scores?.[id] ?? 0);
  return { ...file, tokens: kept.map((id) => file.tokens[id]!), scores };
}

/** Vocabularies that differ in more than their pre-tokenizer. */
const kinds: Readonly<Record<string, VocabularyFile>> = {
  "byte pairs with BOS and EOS": {
    ...bytePairFile("gpt-2"),
    fields: { bos_token_id: u32(0), eos_token_id: u32(2), add_bos_token: flag(true), add_eos_token: flag(true) },
  },
  "byte pairs of gemma4": { ...bytePairFile("default", "spaces"), model: "gemma4" },
  "words between spaces": { ...bytePairFile("whitespace", "characters"), model: "whitespace" },
  "lower-cased words between spaces": {
    ...bytePairFile("whitespace", "characters"),
    model: "whitespace",
    fields: { "normalizer.lowercase": flag(true) },
  },
  "byte pairs whose control tokens swallow what follows": withTokens(
    { ...bytePairFile("gpt-2"), name: "Phi-3" },
    ["</s>", "<s>", "<unk>"],
    control,
  ),
  "byte pairs with a mask that swallows what precedes": { ...bytePairFile("modern-bert"), name: "modern-bert-x" },
  "byte pairs with tokens of the user's that overlap": withTokens(
    bytePairFile("qwen2"),
    ["\n\n", "\n\n\n", "\n\n\n\n", "aa", "aaaa", " a", "re y", "you'", "u'r", "\t ", " \t", "!!!", "世世世", "😀😀😀"],
    userDefined,
  ),
  SentencePiece: sentencePieceFile(),
  "SentencePiece whose pieces begin with their space": {
    ...sentencePieceFile(),
    ...withoutPieces(sentencePieceFile(), (piece) => /[^▁]▁/.test(piece)),
  },
  "SentencePiece without a space in front": sentencePieceFile({ add_space_prefix: flag(false) }),
  "SentencePiece without BOS, with EOS": sentencePieceFile({ add_bos_token: flag(false), add_eos_token: flag(true) }),
  WordPiece: wordPieceFile(),
  "WordPiece that keeps case": wordPieceFile({ "normalizer.lowercase": flag(false) }),
  "WordPiece that keeps accents": wordPieceFile({ "normalizer.strip_accents": flag(false) }),
  "WordPiece that keeps case alone": wordPieceFile({
    "normalizer.lowercase": flag(false),
    "normalizer.strip_accents": flag(true),
  }),
  Unigram: unigramFile(),
  "Unigram with a map": unigramFile(charactersMapField),
  "Unigram with a space in front": unigramFile({ ...charactersMapField, add_space_prefix: flag(true) }),
  "Unigram that joins spaces": unigramFile({
    ...charactersMapField,
    remove_extra_whitespaces: flag(true),
    add_eos_token: flag(false),
  }),
  "Unigram with a space in front that joins spaces": unigramFile({
    add_space_prefix: flag(true),
    remove_extra_whitespaces: flag(true),
  }),
};

describe("every kind of vocabulary", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-words-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  async function compare(file: VocabularyFile, check: (ours: Vocabulary, native: NativeVocabulary) => void) {
    const path = join(folder, "words.gguf");
    await writeVocabulary(path, file);
    const native = await NativeVocabulary.load(path);
    try {
      check(createVocabulary((await readModelMetadata(path)).tokenizer), native);
    } finally {
      native.dispose();
    }
  }

  function agreeOn(ours: Vocabulary, native: NativeVocabulary, sample: string): void {
    assert.deepEqual(ours.encode(sample), native.tokenize(sample), JSON.stringify(sample));
  }

  function agree(ours: Vocabulary, native: NativeVocabulary, numRuns: number): void {
    // The last sample has an ideograph of Unicode 17, which llama.cpp classifies by its range.
    for (const sample of [...Object.values(texts), ...vocabularyProbes, "\u{2cea2}A"]) agreeOn(ours, native, sample);
    fc.assert(
      fc.property(anyText, (sample) => agreeOn(ours, native, sample)),
      { numRuns },
    );
  }

  describe("by pre-tokenizer", () => {
    // If a pre-tokenizer only splits off words, as "whitespace" does, llama.cpp crashes on two consecutive spaces. So
    // "whitespace" is tested below, with another kind of vocabulary.
    for (const pre of preTokenizerNames.filter((name) => name !== "whitespace")) {
      it(`gives llama.cpp's tokens: ${pre}`, () =>
        compare(bytePairFile(pre, findPreTokenizer(pre)!.symbols), (ours, native) => agree(ours, native, 40)));
    }
  });

  for (const [kind, file] of Object.entries({
    "letters, marks, symbols and punctuation": bytePairFile("deepseek-v3"),
    WordPiece: wordPieceFile(),
    Unigram: unigramFile(charactersMapField),
  })) {
    it(`treats the characters of the first two planes as llama.cpp does: ${kind}`, () =>
      compare(file, (ours, native) => {
        for (let first = 1; first < 0x20000; first += 256) {
          if (uniform.some(([start, end]) => first >= start && first < end)) continue;
          const characters = Array.from({ length: 256 }, (_, index) => String.fromCodePoint(first + index));
          agreeOn(ours, native, characters.map((character) => `a${character}1 ${character}`).join(""));
        }
      }));
  }

  for (const [kind, file] of Object.entries(kinds)) {
    it(`gives llama.cpp's tokens and pieces: ${kind}`, () =>
      compare(file, (ours, native) => {
        agree(ours, native, 200);
        for (const sample of Object.values(texts)) {
          const whole = native.tokenize(sample, { addSpecial: true });
          assert.deepEqual(ours.encodeWhole(sample), whole, JSON.stringify(sample));
          const parsed = native.tokenize(sample, { addSpecial: false, parseSpecial: true });
          const prompt = [...ours.encodePrompt({ text: sample, marker: "\ufdd1" })];
          if (whole[0] !== parsed[0] && whole[0] === ours.bosToken) prompt.shift();
          assert.deepEqual(prompt, [...parsed], JSON.stringify(sample));
        }
        // For this kind of vocabulary, llama.cpp's decoded texts are wrong: it decodes pieces as byte encodings (one character
        // per byte).
        if (file.model === "whitespace") return;
        for (let token = 0; token < ours.size; token++) {
          assert.deepEqual(Buffer.from(ours.piece(token)), native.piece(token), ours.tokenText(token));
        }
      }));
  }
});
