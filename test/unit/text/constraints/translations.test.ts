import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type OutputConstraint, translateOutput } from "../../../../engines/text/constraints/translate.ts";
import { Translations } from "../../../../engines/text/constraints/translations.ts";

const regex = (pattern: string): OutputConstraint => ({
  grammar: { kind: "regex", pattern },
  calls: null,
  thinking: null,
  answerOpen: "",
});

function largeSchema(): object {
  const properties = Object.fromEntries(
    Array.from({ length: 400 }, (_, i) => [`p${i}`, { type: "string", maxLength: 9 }]),
  );
  return { type: "object", properties };
}

describe("translations", () => {
  it("are cached for the same grammar", () => {
    const translations = new Translations();
    const first = translations.of(regex("a+"));
    assert.equal(translations.of(regex("a+")), first);
    assert.notDeepEqual(translations.of(regex("b+")).source, first.source);
  });

  it("are dropped, the least recently used first", () => {
    const translations = new Translations(2);
    const [a, b] = [translations.of(regex("a")), translations.of(regex("b"))];
    assert.equal(translations.of(regex("a")), a);
    translations.of(regex("c"));
    assert.equal(translations.of(regex("a")), a);
    assert.notEqual(translations.of(regex("b")), b);
  });

  it("are cached up to a number of grammar characters; a larger one is not", () => {
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

  it("are not cached for a refused grammar; its refusal is", () => {
    const translations = new Translations();
    const refusal = (demand: OutputConstraint) => {
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

  for (const [name, grammar] of [
    ["a regex", { kind: "regex", pattern: "a?".repeat(4000) }],
    ["a schema", { kind: "json_schema", schema: largeSchema(), field: "response_format" }],
    [
      "a schema with a check of the finished text",
      { kind: "json_schema", schema: { ...largeSchema(), not: { const: 1 } }, field: "response_format" },
    ],
  ] as const) {
    it(`are made if ${name} is repeated after a timeout`, (test) => {
      const translations = new Translations();
      const demand: OutputConstraint = { grammar, calls: null, thinking: null, answerOpen: "" };
      let nowMs = performance.now();
      // Each read of the clock advances it by five seconds.
      const clock = test.mock.method(performance, "now", () => (nowMs += 5000));
      assert.throws(() => translations.of(demand), {
        code: "timeout",
        retryable: true,
        message: /more than 4 s .*try again/,
      });
      clock.mock.restore();
      assert.ok(translations.of(demand).source.grammar.length > 0);
    });
  }

  it("are not tried again after a limit of the runtime", () => {
    const translations = new Translations();
    let reads = 0;
    const grammar = {
      kind: "regex" as const,
      get pattern(): string {
        // The first read of the pattern computes the digest of the grammar; the second read is for the translation and throws.
        if (++reads % 2 === 0) throw new RangeError("Invalid string length");
        return "a";
      },
    };
    const demand: OutputConstraint = { grammar, calls: null, thinking: null, answerOpen: "" };
    assert.throws(() => translations.of(demand), RangeError);
    reads = 0;
    assert.throws(() => translations.of(demand), RangeError);
    assert.equal(reads, 1);
  });
});
