// Special tokens: their ids, and which of them are added to a text.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { added, byteLevelJson, piecesJson, TokenizerRig, unigramJson, wordPieceJson } from "./tokenizer-rig.ts";

const rig = new TokenizerRig();
after(() => rig.dispose());

/** Returns a byte-level tokenizer with additional tokens. */
function withTokens(...texts: readonly string[]) {
  const json = byteLevelJson();
  const first = Object.keys(json.model.vocab).length;
  json.added_tokens.push(...texts.map((text, index) => added(first + index, text)));
  return { json, first };
}

describe("special tokens of a folder", () => {
  it("have the names of tokenizer_config.json first, then of special_tokens_map.json, then the ids of config.json", async () => {
    const { values } = await rig.convert({
      "tokenizer.json": withTokens("<|pad|>").json,
      "tokenizer_config.json": { eos_token: { content: "<|begin|>" }, bos_token: null },
      "special_tokens_map.json": { eos_token: "<|endoftext|>", pad_token: "<|pad|>" },
      "config.json": { bos_token_id: 1, eos_token_id: 1, text_config: { bos_token_id: 0 } },
    });
    assert.equal(values.get("eos_token_id"), 0);
    assert.equal(values.get("padding_token_id"), 265);
    assert.equal(values.get("bos_token_id"), 1);
    assert.equal(values.get("add_bos_token"), false);
    assert.equal(values.get("add_eos_token"), false);
  });

  it("are found in a tokenizer.json alone", async () => {
    const bytes = await rig.convert({ "tokenizer.json": byteLevelJson() });
    assert.equal(bytes.values.get("eos_token_id"), 1);
    const pieces = await rig.convert({ "tokenizer.json": piecesJson() });
    const keys = [
      "bos_token_id",
      "eos_token_id",
      "unknown_token_id",
      "add_bos_token",
      "add_eos_token",
      "add_space_prefix",
    ];
    assert.deepEqual(
      keys.map((key) => pieces.values.get(key)),
      [1, 2, 0, true, false, true],
    );
    const unigram = await rig.convert({ "tokenizer.json": unigramJson() });
    assert.deepEqual(
      keys.map((key) => unigram.values.get(key)),
      [undefined, 1, 2, false, true, true],
    );
    const words = await rig.convert({ "tokenizer.json": wordPieceJson() });
    const wordKeys = ["bos_token_id", "eos_token_id", "unknown_token_id"];
    assert.deepEqual(
      wordKeys.map((key) => words.values.get(key)),
      [2, 3, 1],
    );
  });

  it("require an end-of-text token", async () => {
    const json = byteLevelJson();
    json.added_tokens = [];
    await assert.rejects(
      rig.convert({ "tokenizer.json": json }),
      /no file names the token that ends a text; set eos_token/,
    );
  });

  it("end with what the post-processor adds, and generation also ends with the named end", async () => {
    const { json, first } = withTokens("<|stop|>");
    json.post_processor = {
      type: "TemplateProcessing",
      single: [{ Sequence: { id: "A" } }, { SpecialToken: { id: "<|endoftext|>" } }],
    };
    const { values } = await rig.convert({
      "tokenizer.json": json,
      "tokenizer_config.json": { eos_token: "<|stop|>" },
    });
    assert.equal(values.get("eos_token_id"), 1);
    assert.equal(values.get("eot_token_id"), first);
    assert.equal(values.get("add_eos_token"), true);
  });

  it("include further ends of generation_config.json, and a warning names those without a key", async () => {
    const { json, first } = withTokens("<a>", "<b>", "<c>", "<|im_end|>");
    const { values, warnings } = await rig.convert({
      "tokenizer.json": json,
      "tokenizer_config.json": { eos_token: "<|endoftext|>" },
      "generation_config.json": { eos_token_id: [1, first, first + 1, first + 2, first + 3] },
    });
    assert.equal(values.get("eot_token_id"), first);
    assert.equal(values.get("eom_token_id"), first + 1);
    assert.deepEqual(warnings, [`these tokens do not end a generation: ${first + 2}`]);
  });

  it("are added as tokenizer_config.json says, if they are known", async () => {
    const config = { eos_token: "<|endoftext|>", bos_token: "<|begin|>", add_bos_token: true, add_eos_token: true };
    const { values } = await rig.convert({ "tokenizer.json": byteLevelJson(), "tokenizer_config.json": config });
    assert.equal(values.get("add_bos_token"), true);
    assert.equal(values.get("add_eos_token"), true);
    const unknown = { ...config, bos_token: "<|other|>" };
    const other = await rig.convert({ "tokenizer.json": byteLevelJson(), "tokenizer_config.json": unknown });
    assert.equal(other.values.get("add_bos_token"), false);
    assert.match(other.warnings.join(), /no begin token is added/);
  });

  it("of pairs of texts follow the post-processor", async () => {
    const json = byteLevelJson();
    json.post_processor = { type: "RobertaProcessing", sep: ["<|endoftext|>", 1], cls: ["<|begin|>", 0] };
    const { values } = await rig.convert({ "tokenizer.json": json });
    const keys = [
      "bos_token_id",
      "eos_token_id",
      "seperator_token_id",
      "add_bos_token",
      "add_eos_token",
      "add_sep_token",
    ];
    assert.deepEqual(
      keys.map((key) => values.get(key)),
      [0, 1, 1, true, true, true],
    );
  });

  it("of infill prompts are found by name", async () => {
    const { json, first } = withTokens("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_sep|>");
    const { values } = await rig.convert({ "tokenizer.json": json });
    const keys = ["fim_pre", "fim_mid", "fim_suf", "fim_sep"].map((key) => values.get(`${key}_token_id`));
    assert.deepEqual(keys, [first, first + 1, first + 2, first + 3]);
  });
});
