// Output constraints combined into one grammar: rejected schemas, errors that name the tool, and validation after
// generation. test/threads/grammar tests the generated texts with the grammar engine.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { ToolSpec } from "../../../../engines/generation.ts";
import { closed } from "../../../../engines/text/constraints/json-schema/closed.ts";
import { compileSchema } from "../../../../engines/text/constraints/json-schema/rules/compile.ts";
import { type OutputConstraint, translateOutput } from "../../../../engines/text/constraints/translate.ts";
import { Translations } from "../../../../engines/text/constraints/translations.ts";
import type { CallSyntax } from "../../../../engines/text/parse/tool-format.ts";
import type { ServerError } from "../../../../runtime/errors.ts";

const syntax: CallSyntax = {
  trigger: "<call>",
  open: "<call>",
  between: null,
  close: "</call>",
  before: (name) => `${name}:`,
  after: () => "",
};

const tool = (parameters: unknown, strict = true, name = "look_up"): ToolSpec => ({
  name,
  description: null,
  parameters,
  strict,
});

const calling = (...specs: ToolSpec[]): OutputConstraint => ({
  grammar: null,
  calls: { specs, syntax, required: true, parallel: false },
  thinking: null,
  answerOpen: "",
});

const grammarOf = (...specs: ToolSpec[]) => translateOutput(calling(...specs)).source.grammar;

const object = (properties: object) => ({ type: "object", properties, additionalProperties: false });

describe("the parameters of a tool", () => {
  const refused = (spec: ToolSpec, code: string, message: RegExp) =>
    assert.throws(
      () => grammarOf(tool(null, true, "other"), spec),
      (thrown: ServerError) => thrown.code === code && thrown.param === "tools" && message.test(thrown.message),
    );

  it("are refused with the tool's name and their position, if they are strict and cannot be compiled", () => {
    const elsewhere = object({ key: { $ref: "https://example.org/schema" } });
    refused(tool(elsewhere), "unsupported", /tool "look_up": JSON schema, \/properties\/key\/\$ref: .*not fetched/);
    refused(tool({ type: 5 }), "invalid_value", /tool "look_up": JSON schema, .*type/);
  });

  it("become any object if they are not strict and cannot be compiled", () => {
    const unnumbered = (spec: ToolSpec) => grammarOf(spec).replace(/_\d+/g, "");
    const anyObject = unnumbered(tool(null, false));
    assert.equal(unnumbered(tool(object({ key: { $ref: "https://example.org/schema" } }), false)), anyObject);
    assert.equal(unnumbered(tool("nonsense", false)), anyObject);
    assert.equal(unnumbered(tool({ description: "anything" }, true)), anyObject);
  });

  it("become any object if they are not strict and too large together", () => {
    const many = Array.from({ length: 60 }, (_, i) =>
      object(Object.fromEntries(Array.from({ length: 12 }, (_, k) => [`key_${i}_${k}`, { type: "integer" }]))),
    );
    const loose = many.map((parameters, i) => tool(parameters, false, `tool_${i}`));
    const grammar = grammarOf(...loose, tool(object({ kept: { const: 1 } }), true, "last"));
    assert.ok(!grammar.includes("key_0_0"));
    assert.ok(grammar.includes("kept"));
    assert.ok(grammarOf(...loose.slice(0, 5)).includes("key_0_0"));
  });

  it("must allow an object", () => {
    for (const strict of [true, false]) {
      const nothing = { ...object({}), required: ["key"] };
      refused(
        tool(nothing, strict),
        "invalid_value",
        /tool "look_up": arguments must be an object, but no object can match/,
      );
      refused(tool({ type: "string" }, strict), "invalid_value", /tool "look_up": arguments must be an object/);
    }
  });

  it("are checked in a finished call if they are strict and the grammar does not enforce all of them", () => {
    const long = object({ text: { type: "string", maxLength: 3000 } });
    const { checkCall } = translateOutput(calling(tool(long), tool(long, false, "loose")));
    const tooLong = JSON.stringify({ text: "x".repeat(3001) });
    assert.match(checkCall?.("look_up", tooLong) ?? "", /3000 characters/);
    assert.equal(checkCall?.("look_up", '{"text": "short"}'), null);
    assert.equal(checkCall?.("loose", tooLong), null);
    assert.equal(checkCall?.("unknown", tooLong), null);
    assert.equal(translateOutput(calling(tool(object({})))).checkCall, null);
  });

  it("are checked in every finished call of a strict tool if free text may contain other calls", () => {
    const numbered = tool({ ...object({ n: { type: "integer" } }), required: ["n"] });
    const constraint = calling(numbered, tool(null, false, "loose"));
    const calls = constraint.calls!;
    const thinking = { tags: { begin: "<think>", end: "</think>" }, hasBegun: false };
    for (const free of [
      { ...constraint, calls: { ...calls, required: false } },
      { ...constraint, thinking },
    ]) {
      const { checkCall } = translateOutput(free);
      assert.match(checkCall?.("look_up", '{"evil": "x"}') ?? "", /required|additional/);
      assert.equal(checkCall?.("look_up", '{"n": 1}'), null);
      assert.equal(checkCall?.("loose", '{"evil": "x"}'), null);
    }
  });

  it("may combine several schemas of one object", () => {
    const x = { properties: { x: { type: "integer" } }, required: ["x"] };
    const beside = { type: "object", properties: { kind: { type: "string" } }, required: ["kind"] };
    for (const strict of [true, false]) {
      for (const schema of [
        { ...beside, anyOf: [x] },
        { ...beside, oneOf: [x, { ...x, properties: { x: { type: "string" } } }] },
        { ...beside, $ref: "#/$defs/x", $defs: { x } },
        { anyOf: [beside], oneOf: [x] },
        { ...x, patternProperties: { "^x": { type: "integer" } } },
        { items: {}, properties: { list: { items: x, contains: { required: ["y"] }, minContains: 1 } } },
      ]) {
        assert.doesNotThrow(() => translateOutput(calling(tool(schema, strict))));
        assert.deepEqual(closed(schema), schema);
      }
    }
  });
});

describe("the objects of a tool", () => {
  it("have only the properties they name, if the schema says nothing of others", () => {
    const inner = { properties: { b: { type: "string" } } };
    const schema = { properties: { a: { items: inner }, properties: { anyOf: [inner, true] } }, required: ["a"] };
    const shut = { ...inner, additionalProperties: false };
    assert.deepEqual(closed(schema), {
      properties: { a: { items: shut }, properties: { anyOf: [shut, true] } },
      required: ["a"],
      additionalProperties: false,
    });
  });

  it("still have a match if they had one, for random schemas", () => {
    const name = fc.constantFrom("a", "b");
    const value = fc.constantFrom(1, {}, { a: 1 }, { a: { b: 1 } }, { a: 1, b: 1 });
    const { schema } = fc.letrec<{ schema: unknown }>((tie) => {
      const some = fc.array(tie("schema"), { minLength: 1, maxLength: 2 });
      const keywords = Object.entries({
        properties: fc.dictionary(name, tie("schema"), { maxKeys: 2 }),
        required: fc.uniqueArray(name, { maxLength: 2 }),
        ...{ anyOf: some, oneOf: some, additionalProperties: tie("schema"), minProperties: fc.constant(1) },
        ...{ $ref: fc.constantFrom("#", "#/properties/a"), enum: fc.array(value, { minLength: 1 }), const: value },
        dependentRequired: fc.constant({ a: ["b"] }),
      }).map(([key, arbitrary]) => fc.tuple(fc.constant(key), arbitrary));
      const members = fc.array(fc.oneof(...keywords), { minLength: 1, maxLength: 3 });
      const leaf = fc.constantFrom<unknown>(true, { type: "integer" }, { properties: { a: true } });
      return {
        schema: fc.oneof(
          { maxDepth: 3 },
          leaf,
          members.map((all) => ({ type: "object", ...Object.fromEntries(all) })),
        ),
      };
    });
    let count = 0;
    fc.assert(
      fc.property(schema, (inner) => {
        const whole = { type: "object", properties: { a: inner }, required: ["a"] };
        const shut = closed(whole);
        if (shut !== whole) count++;
        if (possible(whole)) assert.ok(possible(shut), JSON.stringify(shut));
      }),
      { numRuns: 300 },
    );
    assert.ok(count > 50);
  });

  function possible(schema: unknown): boolean {
    try {
      return compileSchema(schema).grammar !== "";
    } catch {
      return false;
    }
  }

  for (const [why, schema] of [
    ["allows other properties", { properties: { a: true }, additionalProperties: true }],
    ["requires other properties", { properties: { a: true }, required: ["b"] }],
    ["is combined with another", { allOf: [{ properties: { a: true } }, { properties: { b: true } }] }],
    [
      "is a branch of oneOf",
      { oneOf: [{ properties: { a: true }, required: ["a"] }, { properties: { b: { properties: { c: true } } } }] },
    ],
    [
      "is referenced from a branch of oneOf",
      { oneOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }], $defs: { a: { properties: { c: true } }, b: true } },
    ],
    ["has values", { properties: { a: true }, enum: [{ b: 1 }] }],
    ["has alternatives", { properties: { a: true }, oneOf: [{ required: ["a"] }, { required: ["b"] }] }],
    ["names no properties", { type: "object" }],
    ["is a constant", { const: { properties: {} } }],
    ["is not an object", true],
  ] as const) {
    it(`stay unchanged if a schema ${why}`, () => assert.deepEqual(closed(schema), schema));
  }
});

describe("an output", () => {
  it("is refused if no text matches its grammar, even if calls would match", () => {
    const schema = { type: "string", enum: [1] };
    const constraint = { ...calling(tool(null)), grammar: { kind: "json_schema", schema, field: "grammar" } } as const;
    const optional = { ...constraint, calls: { ...constraint.calls!, required: false } };
    assert.throws(() => translateOutput(optional), { code: "invalid_value", message: /contradict/ });
  });

  it("is translated again if the call syntax differs", () => {
    const translations = new Translations();
    const constraint = calling(tool(null));
    const first = translations.of(constraint);
    assert.equal(translations.of(structured(constraint, syntax)), first);
    const other = translations.of(structured(constraint, { ...syntax, before: (name) => `call ${name} with ` }));
    assert.notEqual(other.source.grammar, first.source.grammar);
  });

  function structured(constraint: OutputConstraint, written: CallSyntax): OutputConstraint {
    return { ...constraint, calls: { ...constraint.calls!, syntax: { ...written } } };
  }
});
