// Exact tokenizer rules on hostile texts: each is tokenized in linear time or rejected.
// parity/tokenizers/tokenizer-folders.test.ts tests that the tokens equal those of the Python package.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { exactRulesKey, type NormalizerRule, parseExactRules } from "../../../../engines/files/tokenizer-rules.ts";
import { CharactersMap } from "../../../../engines/text/tokenizer/encoding/characters-map.ts";
import { normalizerOf } from "../../../../engines/text/tokenizer/exact/normalizers.ts";
import { compileCharactersMap } from "../../../fixtures/text/characters-map.ts";

const map = new CharactersMap([...compileCharactersMap({ "\t": " ", "e\u0301": "é", ﬁ: "fi" })]);
const normalize = (rule: NormalizerRule, text: string) => normalizerOf(rule, map)(text);
const bert = { type: "BertNormalizer", cleans: true, separates: true, strips: true, lowersCase: true } as const;
/** Time limit in ms: much longer than linear time takes, and much shorter than quadratic time. */
const longestMs = 10_000;

describe("exact rules", () => {
  it("replace graphemes, also beyond the piece of a text that is segmented at once", () => {
    const text = `${"wörld ".repeat(60)}e\u0301\tﬁ`.repeat(40);
    const expected = `${"wörld ".repeat(60)}é fi`.repeat(40);
    assert.equal(normalize({ type: "Precompiled" }, text), expected);
  });

  it("take linear time", () => {
    const start = performance.now();
    for (const part of [
      "Hello wörld ",
      "👨\u200d👩\u200d👧",
      "नमस्तेदुनिया",
      "你好世界",
      " ",
      `a${"\u0315\u0300".repeat(200)}`,
    ]) {
      const text = part.repeat(150_000 / part.length);
      normalize({ type: "Precompiled" }, text);
      normalize({ type: "NFC" }, text);
      normalize({ type: "Strip", left: true, right: true }, `x${text}x`);
      normalize(bert, text);
    }
    assert.ok(performance.now() - start < longestMs, `${performance.now() - start} ms`);
  });

  it("reject more combining marks on one letter than any language has", () => {
    const text = `a${"\u0315\u0300".repeat(100_000)}`;
    assert.throws(() => normalize({ type: "NFC" }, text), RangeError);
    assert.throws(() => normalize(bert, text), RangeError);
  });

  it("are rejected with the name of their key if troupe has not written them", () => {
    for (const text of ["", "7", "{}", '{"normalizers":[],"words":[],"added":[],"inside":[],"model":7}']) {
      assert.throws(() => parseExactRules(text), { code: "model_file_invalid", message: new RegExp(exactRulesKey) });
    }
    assert.throws(() => normalize({ type: "Other" } as never, "a"), { code: "model_file_invalid" });
  });
});
