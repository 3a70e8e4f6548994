// Pre-tokenizer table: it has the same names as the tokenizer, and each tokenizer file with the patterns of an entry is
// recognized by that entry's name.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { knownPreTokenizers } from "../../../../../engines/files/checkpoint/tokenizer/kinds/pre-tokenizers.ts";
import { findPreTokenizer } from "../../../../../engines/text/tokenizer/encoding/pre-tokenizers.ts";
import { byteLevelJson, TokenizerRig } from "./tokenizer-rig.ts";

const rig = new TokenizerRig();
after(() => rig.dispose());

const lastStep = { type: "ByteLevel", add_prefix_space: false, use_regex: false };

function withSteps(steps: readonly object[], takesWords = false): object {
  const base = byteLevelJson();
  const model = { ...base.model, ignore_merges: takesWords };
  return { ...base, model, pre_tokenizer: { type: "Sequence", pretokenizers: steps } };
}

const splits = (...patterns: readonly string[]) =>
  patterns.map((Regex) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false }));

async function nameOf(json: object): Promise<unknown> {
  const { values } = await rig.convert({ "tokenizer.json": json });
  return values.get("pre");
}

describe("the table of pre-tokenizers", () => {
  for (const { name, takesWords = false } of knownPreTokenizers) {
    it(`has a name that the tokenizer knows, with the same rule for whole words: ${name}`, () => {
      const rules = findPreTokenizer(name);
      assert.equal(rules?.wordsFirst, takesWords);
      assert.equal(rules?.symbols, "bytes");
    });
  }

  for (const { name, cuts, takesWords = false } of knownPreTokenizers.filter(({ name }) => name !== "falcon")) {
    it(`identifies the patterns of ${name}`, async () => {
      assert.equal(await nameOf(withSteps([...splits(...cuts), lastStep], takesWords)), name);
    });
  }

  it("identifies steps that are not patterns", async () => {
    const words = { type: "ByteLevel", add_prefix_space: false };
    const digits = (individual_digits: boolean) => ({ type: "Digits", individual_digits });
    assert.equal(await nameOf(byteLevelJson()), "gpt-2");
    assert.equal(await nameOf(withSteps([digits(true), words])), "smollm");
    const punctuation = { type: "Punctuation", behavior: "Contiguous" };
    const falcon = [punctuation, words, digits(false), ...splits("[0-9][0-9][0-9]")];
    assert.equal(await nameOf(withSteps(falcon)), "falcon");
  });

  it("identifies other spellings of a pattern", async () => {
    const qwen2 =
      "'(?i:[sdmt]|ll|ve|re)|[^\r\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}]++[\r\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    assert.equal(await nameOf(withSteps([...splits(qwen2), lastStep])), "qwen2");
    const [cut] = splits(qwen2);
    assert.equal(await nameOf(withSteps([{ ...cut, behavior: "Removed", invert: true }, lastStep])), "qwen2");
  });

  it("rejects unknown patterns, and shows them in the error", async () => {
    const steps = withSteps([...splits("\\p{L}+|x"), lastStep]);
    await assert.rejects(nameOf(steps), {
      code: "model_file_invalid",
      message: /tokenizer\.json: pre_tokenizer cuts text with "\\\\p\{L\}\+\|x".*tok_model_id/,
    });
    const [cut] = splits("[^\\n]+|[\\n]+");
    const removing = withSteps([{ ...cut, behavior: "Removed" }, lastStep]);
    await assert.rejects(nameOf(removing), /pre_tokenizer cuts text with "Split\(.*Removed\)"/);
    await assert.rejects(nameOf(withSteps([{ type: "UnicodeScripts" }, lastStep])), /"UnicodeScripts"/);
  });

  it("has an exact rule for whole words, if merges do not build every token", async () => {
    const json = byteLevelJson();
    json.model.ignore_merges = true;
    const built = await rig.convert({ "tokenizer.json": json });
    assert.deepEqual(built.warnings, []);
    json.model.vocab.unbuilt = Object.keys(json.model.vocab).length;
    const { values, warnings } = await rig.convert({ "tokenizer.json": json });
    const rules = JSON.parse(values.get("troupe.tokenizer.rules") as string);
    assert.deepEqual([rules.model.takesWords, warnings], [true, []]);
  });
});
