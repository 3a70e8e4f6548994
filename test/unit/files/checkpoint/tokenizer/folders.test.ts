// Tokenizer folders: chat templates, older tokenizer files, SentencePiece files, vocabulary sizes.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { tokenizerPairs } from "../../../../../engines/files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { added, byteLevelJson, pieceFile, piecesJson, TokenizerRig, wordPieceJson } from "./tokenizer-rig.ts";

const rig = new TokenizerRig();
after(() => rig.dispose());

const template = "tokenizer.chat_template";

describe("chat templates", () => {
  it("come from chat_template.jinja and the files beside it first", async () => {
    const { values } = await rig.convert({
      "tokenizer.json": byteLevelJson(),
      "tokenizer_config.json": { chat_template: "config" },
      "chat_template.jinja": "{{ file }}",
      "additional_chat_templates/tool-use.jinja": "tools",
      "additional_chat_templates/notes.txt": "no template",
    });
    assert.equal(values.get(template), "{{ file }}");
    assert.equal(values.get(`${template}.tool_use`), "tools");
    assert.deepEqual(values.get(`${template}s`), ["tool_use"]);
  });

  it("may be a list in tokenizer_config.json", async () => {
    const chat_template = [
      { name: "default", template: "a" },
      { name: "rag", template: "b" },
    ];
    const { values } = await rig.convert({
      "tokenizer.json": byteLevelJson(),
      "tokenizer_config.json": { chat_template },
    });
    assert.deepEqual([values.get(template), values.get(`${template}.rag`)], ["a", "b"]);
  });

  it("come from chat_template.json last", async () => {
    const files = { "tokenizer.json": byteLevelJson(), "chat_template.json": { chat_template: "c" } };
    assert.equal((await rig.convert(files)).values.get(template), "c");
    assert.equal((await rig.convert({ "tokenizer.json": byteLevelJson() })).values.has(template), false);
  });
});

describe("the tokens of a folder", () => {
  it("are padded to the size of the model, and added tokens beyond it are left out with a warning", async () => {
    const json = byteLevelJson();
    json.added_tokens.push(added(270, "<|late|>"), added(266, "plain", { special: false }));
    const { values, warnings } = await rig.convert({ "tokenizer.json": json }, 269);
    const [tokens, types] = [values.get("tokens") as string[], values.get("token_type") as number[]];
    assert.equal(tokens.length, 269);
    assert.deepEqual(tokens.slice(265), ["[PAD265]", "plain", "[PAD267]", "[PAD268]"]);
    assert.deepEqual(types.slice(265), [5, 4, 5, 5]);
    assert.deepEqual(types.slice(0, 3), [3, 3, 1]);
    assert.match(warnings.join(), /"<\|late\|>" is left out: its id 270 is beyond the model's 269 tokens/);
  });

  it("must exist in the model and differ", async () => {
    await assert.rejects(
      rig.convert({ "tokenizer.json": byteLevelJson() }, 200),
      /does not exist in a model of 200 tokens/,
    );
    const json = wordPieceJson();
    json.model.vocab["▁a"] = 9;
    json.model.vocab["##▁a"] = 10;
    await assert.rejects(rig.convert({ "tokenizer.json": json }), /tokens 5 and 10 have the same text "▁a"/);
  });

  it("of a WordPiece vocabulary are marked at the beginning of a word", async () => {
    const { values } = await rig.convert({ "tokenizer.json": wordPieceJson() });
    assert.deepEqual((values.get("tokens") as string[]).slice(3), ["[SEP]", "[MASK]", "▁a", "b", "▁word", "▁."]);
    assert.equal(values.get("normalizer.lowercase"), true);
    assert.equal(values.has("normalizer.strip_accents"), false);
  });

  it("of merges get scores in the order of the merges", async () => {
    const { values } = await rig.convert({ "tokenizer.json": piecesJson() });
    const tokens = values.get("tokens") as string[];
    const scores = values.get("scores") as number[];
    const scoreOf = (text: string) => scores[tokens.indexOf(text)];
    assert.equal(values.get("model"), "llama");
    assert.deepEqual(["he", "ll", "hell", "hello", "▁hello"].map(scoreOf), [-1, -2, -3, -4, -5]);
    assert.deepEqual((values.get("token_type") as number[]).slice(0, 5), [2, 3, 3, 6, 6]);
  });

  it("of merges that lack pairs have no scores", async () => {
    const json = piecesJson();
    json.model.vocab.el = Object.keys(json.model.vocab).length;
    json.model.vocab.hel = Object.keys(json.model.vocab).length;
    json.model.merges.push(["e", "l"], ["h", "el"]);
    await assert.rejects(
      rig.convert({ "tokenizer.json": json }),
      /model\.merges is not that of a SentencePiece model: 2 pairs/,
    );
    const [, replacement] = json.normalizer.normalizers;
    const unprefixed = { ...json, normalizer: replacement };
    const { values } = await rig.convert({ "tokenizer.json": unprefixed });
    assert.deepEqual([values.get("model"), values.get("pre"), values.has("scores")], ["gpt2", "sarvam-moe", false]);
  });

  it("of merges that lack few pairs get scores, and the merges for the exact rules", async () => {
    const json = piecesJson();
    const letters = [..."abcdefgijkmnpq"];
    for (const letter of letters) json.model.vocab[letter] = Object.keys(json.model.vocab).length;
    for (const left of letters) {
      for (const right of letters) {
        json.model.vocab[left + right] = Object.keys(json.model.vocab).length;
        if (left + right !== "ab") json.model.merges.push([left, right]);
      }
    }
    json.model.vocab = Object.fromEntries(Object.keys(json.model.vocab).map((text, id) => [text, id]));
    const { values, warnings } = await rig.convert({ "tokenizer.json": json });
    const scores = values.get("scores") as number[];
    const scoreOf = (text: string) => scores[(values.get("tokens") as string[]).indexOf(text)]!;
    assert.ok(scoreOf("aa") > scoreOf("ab") && scoreOf("ab") > scoreOf("ac"));
    const merges = values.get("troupe.tokenizer.merges") as string[];
    assert.deepEqual([merges.includes("a a"), merges.includes("a b"), warnings], [true, false, []]);
  });

  it("have a file of any name", async () => {
    rig.write({ "other.json": byteLevelJson(), "tokenizer_config.json": { eos_token: "<|begin|>" } });
    const pairs = await tokenizerPairs(join(rig.path, "other.json"), null);
    assert.equal(pairs.get("tokenizer.ggml.eos_token_id")?.value, 0);
    await assert.rejects(tokenizerPairs(join(rig.path, "none.json"), null), /cannot open the tokenizer at .*ENOENT/);
  });
});

describe("older files", () => {
  it("vocab.txt is a WordPiece vocabulary", async () => {
    const { values } = await rig.convert({
      "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n##s\n",
      "tokenizer_config.json": {
        do_lower_case: false,
        pad_token: "[PAD]",
        unk_token: "[UNK]",
        cls_token: "[CLS]",
        sep_token: "[SEP]",
      },
    });
    assert.deepEqual(values.get("tokens"), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁word", "s"]);
    assert.deepEqual(values.get("token_type"), [3, 3, 3, 3, 1, 1]);
    assert.equal(values.get("normalizer.lowercase"), false);
    assert.deepEqual([values.get("bos_token_id"), values.get("seperator_token_id")], [2, 3]);
  });

  it("vocab.json and merges.txt need the class of the tokenizer", async () => {
    const { model } = byteLevelJson();
    const files = { "vocab.json": model.vocab, "merges.txt": `#version: 0.2\n${model.merges.join("\n")}\n` };
    const config = { tokenizer_class: "Qwen2Tokenizer", eos_token: "<|endoftext|>" };
    const added_tokens_decoder = { 265: { content: "<|extra|>", special: true } };
    const { values } = await rig.convert({ ...files, "tokenizer_config.json": { ...config, added_tokens_decoder } });
    assert.equal(values.get("pre"), "qwen2");
    assert.deepEqual((values.get("merges") as string[]).slice(0, 2), ["h e", "l l"]);
    assert.equal((values.get("tokens") as string[])[265], "<|extra|>");
    const other = { ...files, "tokenizer_config.json": { ...config, tokenizer_class: "OddTokenizer" } };
    await assert.rejects(rig.convert(other), /tokenizer_class is "OddTokenizer", which does not say how text is cut/);
  });

  it("a folder without any is refused", async () => {
    await assert.rejects(rig.convert({ "config.json": {} }), /has no tokenizer; expected a tokenizer\.json/);
  });
});

const pieces = [
  ["<unk>", 0, 2],
  ["<s>", 0, 3],
  ["</s>", 0, 3],
  ["<0x0A>", 0, 6],
  ["▁▁", 0, 4],
  ["▁", -1, 1],
  ["a", -2.5, 1],
] as const;

describe("a SentencePiece file", () => {
  it("gives tokens with its scores and types", async () => {
    const { values } = await rig.convert({
      "tokenizer.model": pieceFile(pieces),
      "tokenizer_config.json": { added_tokens_decoder: { 7: { content: "<|x|>", special: false } } },
    });
    assert.equal(values.get("model"), "llama");
    assert.deepEqual(values.get("tokens"), ["<unk>", "<s>", "</s>", "<0x0A>", "  ", "▁", "a", "<|x|>"]);
    assert.deepEqual(values.get("token_type"), [2, 3, 3, 6, 4, 1, 1, 3]);
    assert.deepEqual(values.get("scores"), [0, 0, 0, 0, 0, -1, -2.5, -1000]);
    const keys = [
      "bos_token_id",
      "eos_token_id",
      "unknown_token_id",
      "add_bos_token",
      "add_eos_token",
      "add_space_prefix",
    ];
    assert.deepEqual(
      keys.map((key) => values.get(key)),
      [1, 2, 0, true, false, true],
    );
  });

  it("of a Unigram model gives its rules for spaces and its map", async () => {
    const charactersMap = Uint8Array.of(4, 0, 0, 0, 1, 2, 3, 4, 65, 0);
    const options = { kind: 1, addsPrefix: true, removesSpaces: true, charactersMap };
    const { values } = await rig.convert({ "spiece.model": pieceFile(pieces, options) });
    assert.equal(values.get("model"), "t5");
    assert.deepEqual(values.get("precompiled_charsmap"), [...charactersMap]);
    assert.deepEqual([values.get("add_space_prefix"), values.get("remove_extra_whitespaces")], [true, true]);
    assert.deepEqual([values.get("add_bos_token"), values.get("add_eos_token")], [false, true]);
  });

  it("beside a tokenizer.json gives the scores, if both have the same tokens", async () => {
    const json = piecesJson();
    const texts = Object.keys(json.model.vocab);
    const types = texts.map((_, id) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1));
    const file = texts.map((text, id) => [text, -id / 2, types[id]!] as const);
    const { values } = await rig.convert({ "tokenizer.json": json, "tokenizer.model": pieceFile(file) });
    assert.equal((values.get("scores") as number[]).at(-1), -(texts.length - 1) / 2);
    const other = [...file.slice(0, -1), ["▁help", -1, 1] as const];
    const changed = await rig.convert({ "tokenizer.json": json, "tokenizer.model": pieceFile(other) });
    assert.equal((changed.values.get("scores") as number[]).at(-1), -5);
    assert.match(changed.warnings.join(), /tokenizer\.model is not used: its piece 271 is not a token/);
  });

  it("that is damaged is refused", async () => {
    const whole = pieceFile(pieces);
    for (let length = 0; length < whole.length; length++) {
      const files = { "tokenizer.model": whole.subarray(0, length) };
      await rig.convert(files).catch((error) => {
        assert.equal(error.code, "model_file_invalid", String(error.stack));
        assert.ok(error.message.startsWith(rig.path), error.message);
      });
    }
    await assert.rejects(rig.convert({ "tokenizer.model": "IQ== 0\nIg== 1\n" }), /tokenizer\.model: /);
  });
});
