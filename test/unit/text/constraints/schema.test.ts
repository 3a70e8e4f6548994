import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pruned } from "../../../../engines/text/constraints/ebnf/endings.ts";
import { schemaCheck } from "../../../../engines/text/constraints/json-schema/check.ts";
import { type CompiledSchema, compileSchema } from "../../../../engines/text/constraints/json-schema/rules/compile.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { schemaCorpus } from "../../../fixtures/schemas/corpus.ts";
import { RandomTexts, seeded } from "../../../fixtures/schemas/random-text.ts";

/** Generates random texts of the schema's grammar. Returns them parsed. */
function values(schema: unknown, count: number): unknown[] {
  const { rules } = compileSchema(schema);
  const texts = new RandomTexts(pruned(rules, "root")!);
  const random = seeded(1);
  return Array.from({ length: count }, (_, i) => JSON.parse(texts.text(random, 10 + 10 * (i % 8))));
}

function assertMatching(name: string, schema: unknown, { rules }: CompiledSchema): void {
  const check = schemaCheck(schema);
  const texts = new RandomTexts(pruned(rules, "root")!);
  const random = seeded(7);
  for (const budget of [5, 20, 60, 150]) {
    const text = texts.text(random, budget);
    assert.equal(check(text), null, `${name}: ${text}`);
  }
}

function refusal(schema: unknown): ServerError {
  try {
    compileSchema(schema);
  } catch (thrown) {
    assert.ok(thrown instanceof ServerError);
    return thrown;
  }
  assert.fail("it was accepted");
}

describe("the grammar of a JSON schema", () => {
  it("exists for at least 85 of 100 sample schemas, and derives only values that match", () => {
    // A sixth of the corpus. test/threads/grammar runs the whole corpus with the grammar engine.
    const corpus = schemaCorpus().filter((_, i) => i % 6 === 0);
    const refused: string[] = [];
    corpus.forEach(({ name, schema }, i) => {
      try {
        const compiled = compileSchema(schema);
        if (i % 4 === 0 && compiled.unchecked.length === 0) assertMatching(name, schema, compiled);
      } catch (thrown) {
        assert.ok(thrown instanceof ServerError, `${name}: ${thrown}`);
        assert.match(thrown.message, /\/\S+: .|contradict/, name);
        refused.push(name);
      }
    });
    assert.ok(refused.length <= corpus.length * 0.15, refused.join(", "));
  });

  it("reaches both ends of a range and nothing beyond", () => {
    const found = new Set(values({ type: "integer", minimum: -3, maximum: 2 }, 300));
    assert.deepEqual(
      [...found].sort((a, b) => Number(a) - Number(b)),
      [-3, -2, -1, 0, 1, 2],
    );
  });

  it("reaches every order of a few unique items", () => {
    const found = values({ type: "array", items: { enum: ["a", "b", "c"] }, uniqueItems: true, minItems: 3 }, 200);
    assert.equal(new Set(found.map((value) => JSON.stringify(value))).size, 6);
  });

  it("writes keys in the order of the schema, and sometimes omits optional ones", () => {
    const schema = {
      properties: { b: { const: 1 }, a: { const: 2 } },
      required: ["a"],
      type: "object",
      additionalProperties: false,
    };
    const found = new Set(values(schema, 50).map((value) => JSON.stringify(value)));
    assert.deepEqual([...found].sort(), ['{"a":2}', '{"b":1,"a":2}']);
  });

  it("keeps unnamed keys distinct from named ones", () => {
    const schema = {
      type: "object",
      properties: { ab: { type: "integer" } },
      required: ["ab"],
      additionalProperties: { type: "string" },
    };
    for (const value of values(schema, 100)) assert.equal(typeof (value as { ab: unknown }).ab, "number");
  });

  it("writes a bounded run of blanks between the parts", () => {
    const { rules } = compileSchema({ type: "array", items: { type: "integer" } });
    const texts = new RandomTexts(pruned(rules, "root")!);
    const random = seeded(5);
    for (let i = 0; i < 50; i++) assert.doesNotMatch(texts.text(random, 100), /\s{14}/);
  });

  it("lists the keywords that must be checked in the finished text", () => {
    assert.deepEqual(compileSchema({ type: "string", maxLength: 5000 }).unchecked, ["maxLength"]);
    assert.deepEqual(compileSchema({ type: "array", items: { type: "string" }, uniqueItems: true }).unchecked, [
      "uniqueItems",
    ]);
    assert.deepEqual(compileSchema({ type: "string", maxLength: 50, pattern: "^[a-z]*$" }).unchecked, []);
  });

  it("counts characters between any bounds", () => {
    for (const [minLength, maxLength] of [
      [0, 3],
      [2, 9],
      [5, 5],
      [0, 30],
      [18, 40],
    ] as const) {
      const found = values({ type: "string", minLength, maxLength }, 100).map((value) => [...String(value)].length);
      assert.ok(Math.min(...found) >= minLength && Math.max(...found) <= maxLength, String(found));
      assert.ok(Math.min(...found) === minLength, "the minimum is reached");
    }
  });

  it("shares the counting rules among many fields", () => {
    const record = (count: number) => ({
      type: "object",
      properties: Object.fromEntries(
        Array.from({ length: count }, (_, i) => [`f${i}`, { type: "string", maxLength: 60 - i }]),
      ),
      additionalProperties: false,
    });
    const [one, many] = [compileSchema(record(1)), compileSchema(record(30))];
    assert.deepEqual(many.unchecked, []);
    assert.ok(many.rules.byName.size < one.rules.byName.size + 100);
  });

  it("leaves bounds to the check if counting needs too many rules", () => {
    const bounds = Array.from({ length: 5 }, (_, i) => ({ type: "string", minLength: 500, maxLength: 510 + i }));
    assert.deepEqual(compileSchema({ type: "array", prefixItems: bounds, minItems: 5 }).unchecked, [
      "minLength",
      "maxLength",
    ]);
  });

  for (const [what, schema, code, words] of [
    ["a value that is not a schema", [], "invalid_value", "expected a schema"],
    [
      "a keyword of the wrong type",
      { properties: { a: { minLength: "1" } } },
      "invalid_value",
      "/properties/a/minLength: expected an integer",
    ],
    ["an unknown type", { type: "strnig" }, "invalid_value", "/type: expected one of"],
    ["an empty anyOf", { anyOf: [] }, "invalid_value", "/anyOf: expected an array that is not empty"],
    ["a reference outside the document", { items: { $ref: "other.json" } }, "unsupported", "/items/$ref"],
    [
      "a circular reference",
      { $defs: { a: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" },
      "invalid_value",
      "/$defs/a/$ref",
    ],
    ["a pattern with a backreference", { pattern: "(a)\\1" }, "unsupported", "/pattern: the backreference"],
    [
      "a negation that is not supported",
      { type: "array", not: { uniqueItems: true } },
      "unsupported",
      "/not/uniqueItems",
    ],
    ["a contradiction", { type: "integer", minimum: 2, maximum: 1 }, "invalid_value", "contradict"],
  ] as const) {
    it(`refuses ${what} and names its position`, () => {
      const { code: got, message } = refusal(schema);
      assert.equal(got, code, message);
      assert.ok(message.includes(words), message);
    });
  }
});

describe("the check of a finished text", () => {
  it("says where and why a value does not match", () => {
    const check = schemaCheck({ type: "object", properties: { a: { type: "array", uniqueItems: true } } });
    assert.equal(check('{"a":[1,2]}'), null);
    assert.match(check('{"a":[1,1]}') ?? "", /at \/a must NOT have duplicate items/);
    assert.match(check('{"a":[1') ?? "", /not complete JSON/);
  });

  it("knows only the text's own properties, whatever their names", () => {
    const named = { constructor: { type: "string" }, race: { type: "string" } };
    const check = schemaCheck({ type: "object", properties: named, required: ["race"] });
    assert.equal(check('{"race":"Spa"}'), null);
    assert.equal(check('{"race":"Spa","constructor":"Lotus"}'), null);
    assert.match(check('{"race":"Spa","constructor":1}') ?? "", /at \/constructor must be string/);
    assert.match(schemaCheck({ required: ["toString"] })("{}") ?? "", /must have required property/);
    assert.equal(schemaCheck({ dependentRequired: { valueOf: ["race"] } })("{}"), null);
  });

  it("checks patterned properties beside alternatives, and returns a reason where it cannot", () => {
    const anyOf = [{ type: "string", additionalProperties: {} }, {}];
    const schema = { anyOf, patternProperties: { a: { type: "integer" } } };
    assert.equal(schemaCheck(schema)('{"a":1}'), null);
    assert.match(schemaCheck(schema)('{"a":"1"}') ?? "", /at \/a must be integer/);
    assert.match(schemaCheck({ ...schema, unevaluatedProperties: false })('{"a":1}') ?? "", /cannot be checked/);
  });

  it("distinguishes the patterns of one schema, and takes linear time for each", () => {
    const check = schemaCheck({ type: "object", properties: { a: { pattern: "^(x+x+)+y$" }, b: { pattern: "^z$" } } });
    assert.equal(check('{"a":"xxy","b":"z"}'), null);
    assert.match(check('{"a":"xxy","b":"y"}') ?? "", /at \/b/);
    assert.match(check(JSON.stringify({ a: "x".repeat(5000) })) ?? "", /at \/a/);
  });
});
