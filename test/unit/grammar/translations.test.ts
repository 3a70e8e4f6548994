import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type OutputDemand, translateOutput } from "../../../engines/grammar/translate.ts";
import { Translations } from "../../../engines/grammar/translations.ts";

const regex = (pattern: string): OutputDemand => ({
  grammar: { kind: "regex", pattern },
  calls: null,
  thinking: null,
  answerOpen: "",
});

describe("translations", () => {
  it("are made once for the same grammar", () => {
    const translations = new Translations();
    const first = translations.of(regex("a+"));
    assert.equal(translations.of(regex("a+")), first);
    assert.notDeepEqual(translations.of(regex("b+")).source, first.source);
  });

  it("are forgotten where others have been used since", () => {
    const translations = new Translations(2);
    const [a, b] = [translations.of(regex("a")), translations.of(regex("b"))];
    assert.equal(translations.of(regex("a")), a);
    translations.of(regex("c"));
    assert.equal(translations.of(regex("a")), a);
    assert.notEqual(translations.of(regex("b")), b);
  });

  it("are kept up to so many characters of grammar, and one that is larger is not", () => {
    const size = translateOutput(regex("a")).source.grammar.length;
    const translations = new Translations(64, 2 * size);
    const [a, b] = [translations.of(regex("a")), translations.of(regex("b"))];
    assert.equal(translations.of(regex("b")), b);
    translations.of(regex("c"));
    assert.equal(translations.of(regex("b")), b);
    assert.notEqual(translations.of(regex("a")), a);
    const long = regex("abc".repeat(size));
    assert.notEqual(translations.of(long), translations.of(long));
  });

  it("are not made of what is refused, which is remembered", () => {
    const translations = new Translations();
    const refusal = (demand: OutputDemand) => {
      try {
        translations.of(demand);
      } catch (error) {
        return error;
      }
      return assert.fail("it was translated");
    };
    const first = refusal(regex("("));
    assert.equal((first as { code?: string }).code, "invalid_value");
    assert.equal(refusal(regex("(")), first);
    assert.notEqual(refusal(regex("(a")), first);
  });
});
