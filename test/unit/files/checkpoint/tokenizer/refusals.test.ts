// Tokenizers that GGUF cannot express: rejected with an error that names the field, or accepted with a warning.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { added, byteLevelJson, piecesJson, TokenizerRig, unigramJson, wordPieceJson } from "./tokenizer-rig.ts";

const rig = new TokenizerRig();
after(() => rig.dispose());

const refuses = (json: object, message: RegExp) =>
  assert.rejects(rig.convert({ "tokenizer.json": json }), { code: "model_file_invalid", message });
const warningsOf = async (json: object) => (await rig.convert({ "tokenizer.json": json })).warnings;

describe("a tokenizer feature that llama.cpp lacks", () => {
  it("is rejected with the name of the field", async () => {
    const bytes = byteLevelJson();
    await refuses({ ...bytes, normalizer: { type: "Lowercase" } }, /tokenizer\.json: normalizer is "Lowercase"/);
    const suffixed = { ...bytes, model: { ...bytes.model, end_of_word_suffix: "</w>" } };
    await refuses(suffixed, /model\.end_of_word_suffix is "<\/w>"/);
    await refuses({ ...bytes, model: { type: "WordLevel", vocab: {} } }, /model\.type is "WordLevel"/);
    await refuses({ ...bytes, pre_tokenizer: null }, /pre_tokenizer has no ByteLevel step/);
    await refuses({ ...wordPieceJson(), normalizer: null }, /normalizer is "none"; expected one BertNormalizer/);
    const words = { ...wordPieceJson(), pre_tokenizer: { type: "Whitespace" } };
    await refuses(words, /pre_tokenizer is "Whitespace"; expected BertPreTokenizer/);
    await refuses({ ...unigramJson(), normalizer: { type: "NFKC" } }, /normalizer is "NFKC"/);
    await refuses({ ...unigramJson(), pre_tokenizer: null }, /pre_tokenizer has no Metaspace step/);
    const odd = { ...unigramJson(), pre_tokenizer: { type: "Metaspace", replacement: "_" } };
    await refuses(odd, /pre_tokenizer\.replacement is "_"/);
    const split = { ...piecesJson(), normalizer: null, pre_tokenizer: { type: "Metaspace", split: true } };
    split.model.vocab["▁a▁"] = Object.keys(split.model.vocab).length;
    await refuses(split, /model\.vocab has "▁a▁", but words are encoded separately/);
  });

  it("has exact rules, and no warning", async () => {
    const bytes = byteLevelJson();
    const prefixed = { type: "ByteLevel", add_prefix_space: true, use_regex: true };
    const added_tokens = [...bytes.added_tokens, added(265, "<mask>", { lstrip: true, single_word: true })];
    const uncleaned = { type: "BertNormalizer", clean_text: false, lowercase: true };
    const stripped = piecesJson();
    stripped.normalizer.normalizers.push({ type: "Strip" } as never);
    const first = { type: "Metaspace", prepend_scheme: "first" };
    for (const [json, rule] of [
      [{ ...bytes, normalizer: { type: "NFC" } }, /"NFC"/],
      [{ ...bytes, pre_tokenizer: prefixed }, /"PrefixSpace"/],
      [{ ...bytes, added_tokens }, /\{"id":265,"normalized":false,"rules":\["lstrip","single_word"\]\}/],
      [{ ...wordPieceJson(), normalizer: uncleaned }, /"cleans":false/],
      [stripped, /"Strip"/],
      [{ ...unigramJson(), pre_tokenizer: first }, /"scheme":"first"/],
    ] as const) {
      const { values, warnings } = await rig.convert({ "tokenizer.json": json });
      assert.match(values.get("troupe.tokenizer.rules") as string, rule);
      assert.deepEqual(warnings, []);
    }
  });

  it("is named in a warning, if a step has no exact rule and most texts are encoded the same", async () => {
    const bytes = byteLevelJson();
    const pretokenizers = [
      { type: "Digits", individual_digits: true },
      { type: "ByteLevel", add_prefix_space: true, use_regex: true },
    ];
    const prefixed = { ...bytes, pre_tokenizer: { type: "Sequence", pretokenizers } };
    assert.match((await warningsOf(prefixed)).join(), /no space is added before the first word/);
    const words = wordPieceJson();
    const long = { ...words, model: { ...words.model, max_input_chars_per_word: 5000 } };
    assert.match((await warningsOf(long)).join(), /long words are cut into pieces/);
    bytes.model.vocab["</s>"] = 265;
    assert.match((await warningsOf(bytes)).join(), /only end a generation, .*"<\/s>"/);
  });
});

describe("a tokenizer.json that would take long", () => {
  it("is refused for its number of values", async () => {
    const nested = { "tokenizer.json": "[".repeat(9_000_000) };
    await assert.rejects(rig.convert(nested), /has about 9000000 values; at most 8388608 are read/);
    const deep = { "tokenizer.json": `{"model":${"[".repeat(1_000_000)}${"]".repeat(1_000_000)}}` };
    await assert.rejects(rig.convert(deep), /model is a list of 1; expected an object/);
  });

  it("is refused, if its tokens are too long to compare", async () => {
    const json = piecesJson();
    const first = Object.keys(json.model.vocab).length;
    for (let id = 0; id < 100; id++) json.model.vocab["x".repeat(3000 + id)] = first + id;
    const started = performance.now();
    await refuses(json, /its tokens are too long to compare/);
    assert.ok(performance.now() - started < 5_000);
  });
});

describe("a damaged tokenizer.json", () => {
  it("is rejected with the name of the field", async () => {
    const bytes = byteLevelJson();
    await refuses({ ...bytes, model: 5 }, /model is 5; expected an object/);
    await refuses({ ...bytes, model: null }, /model is missing/);
    await refuses({ ...bytes, added_tokens: [{ id: 1.5 }] }, /added_tokens\[0\]\.(id|content) /);
    await refuses({ ...bytes, model: { ...bytes.model, vocab: { a: -1 } } }, /model\.vocab\.a is not a token id/);
    await refuses({ ...bytes, model: { ...bytes.model, merges: ["h e", "hello"] } }, /model\.merges\.1 is not a pair/);
    const missing = { ...bytes, model: { ...bytes.model, merges: [["h", "zzz"]] } };
    await refuses(missing, /model\.merges\.0 needs "zzz", which is not in model\.vocab/);
    let deep: object = { type: "NFC" };
    for (let depth = 0; depth < 1000; depth++) deep = { type: "Sequence", normalizers: [deep] };
    await refuses({ ...bytes, normalizer: deep }, /is nested more than 8 levels deep/);
    const long = { ...bytes, model: { ...bytes.model, vocab: { ["x".repeat(5000)]: 1 } } };
    await refuses(long, /model\.vocab\.x{64}… has 5000 characters; at most 4096/);
    const many = Array.from({ length: 300 }, () => added(1, "x"));
    await refuses(
      { ...bytes, post_processor: { type: "TemplateProcessing", single: many } },
      /single has 300 elements/,
    );
    await assert.rejects(rig.convert({ "tokenizer.json": "{" }), /tokenizer\.json is not JSON/);
    await assert.rejects(rig.convert({ "tokenizer.json": "[]" }), /tokenizer\.json: its content is a list of 0/);
    await assert.rejects(rig.convert({ "tokenizer.json": Uint8Array.of(0xff) }), /tokenizer\.json is not UTF-8/);
  });
});
