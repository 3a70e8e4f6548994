// What is demanded of an output as a grammar: what is refused, and of which tool; what is checked afterwards. Which texts
// come out is tested with the grammar engine (test/threads/grammar-calls.test.ts).
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

  it("are refused by the tool's name and the place in them, where they are strict and cannot be had", () => {
    const elsewhere = object({ key: { $ref: "https://example.org/schema" } });
    refused(tool(elsewhere), "unsupported", /tool "look_up": JSON schema, \/properties\/key\/\$ref: .*not fetched/);
    refused(tool({ type: 5 }), "invalid_value", /tool "look_up": JSON schema, .*type/);
  });

  it("are any object where they are not strict and cannot be had", () => {
    const unnumbered = (spec: ToolSpec) => grammarOf(spec).replace(/_\d+/g, "");
    const anyObject = unnumbered(tool(null, false));
    assert.equal(unnumbered(tool(object({ key: { $ref: "https://example.org/schema" } }), false)), anyObject);
    assert.equal(unnumbered(tool("nonsense", false)), anyObject);
    assert.equal(unnumbered(tool({ description: "anything" }, true)), anyObject);
  });

  it("are any object where they are not strict and all of them are too much", () => {
    const many = Array.from({ length: 60 }, (_, i) =>
      object(Object.fromEntries(Array.from({ length: 12 }, (_, k) => [`key_${i}_${k}`, { type: "integer" }]))),
    );
    const loose = many.map((parameters, i) => tool(parameters, false, `tool_${i}`));
    const grammar = grammarOf(...loose, tool(object({ kept: { const: 1 } }), true, "last"));
    assert.ok(!grammar.includes("key_0_0"));
    assert.ok(grammar.includes("kept"));
    assert.ok(grammarOf(...loose.slice(0, 5)).includes("key_0_0"));
  });

  it("must leave an object", () => {
    for (const strict of [true, false]) {
      const nothing = { ...object({}), required: ["key"] };
      refused(
        tool(nothing, strict),
        "invalid_value",
        /tool "look_up": arguments must be an object, but no object can match/,
      );
      refused(tool({ type: "string" }, strict), "invalid_value", /tool "look_up": arguments are an object/);
    }
  });

  it("are checked in a finished call where the grammar does not say it all, and they are strict", () => {
    const long = object({ text: { type: "string", maxLength: 3000 } });
    const { checkCall } = translateOutput(calling(tool(long), tool(long, false, "loose")));
    const tooLong = JSON.stringify({ text: "x".repeat(3001) });
    assert.match(checkCall?.("look_up", tooLong) ?? "", /3000 characters/);
    assert.equal(checkCall?.("look_up", '{"text": "short"}'), null);
    assert.equal(checkCall?.("loose", tooLong), null);
    assert.equal(checkCall?.("unknown", tooLong), null);
    assert.equal(translateOutput(calling(tool(object({})))).checkCall, null);
  });

  it("are checked in every finished call of a strict tool where there may be free text, which may hold other calls", () => {
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

  it("may be joined of several schemas of one object", () => {
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
  it("have the properties they name, where nothing else is said of them", () => {
    const inner = { properties: { b: { type: "string" } } };
    const schema = { properties: { a: { items: inner }, properties: { anyOf: [inner, true] } }, required: ["a"] };
    const shut = { ...inner, additionalProperties: false };
    assert.deepEqual(closed(schema), {
      properties: { a: { items: shut }, properties: { anyOf: [shut, true] } },
      required: ["a"],
      additionalProperties: false,
    });
  });

  it("leave something that matches where there was something, whatever schemas are made of", () => {
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
    ["says that there are others", { properties: { a: true }, additionalProperties: true }],
    ["requires others", { properties: { a: true }, required: ["b"] }],
    ["is joined with another", { allOf: [{ properties: { a: true } }, { properties: { b: true } }] }],
    [
      "is one of several of which only one may match",
      { oneOf: [{ properties: { a: true }, required: ["a"] }, { properties: { b: { properties: { c: true } } } }] },
    ],
    [
      "is referred to from there",
      { oneOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }], $defs: { a: { properties: { c: true } }, b: true } },
    ],
    ["has values", { properties: { a: true }, enum: [{ b: 1 }] }],
    ["has alternatives", { properties: { a: true }, oneOf: [{ required: ["a"] }, { required: ["b"] }] }],
    ["names no properties", { type: "object" }],
    ["is a value", { const: { properties: {} } }],
    ["is none", true],
  ] as const) {
    it(`stay as they are where a schema ${why}`, () => assert.deepEqual(closed(schema), schema));
  }
});

describe("an output", () => {
  it("is refused where its grammar leaves nothing, whatever calls would", () => {
    const schema = { type: "string", enum: [1] };
    const constraint = { ...calling(tool(null)), grammar: { kind: "json_schema", schema, field: "grammar" } } as const;
    const optional = { ...constraint, calls: { ...constraint.calls!, required: false } };
    assert.throws(() => translateOutput(optional), { code: "invalid_value", message: /contradict/ });
  });

  it("is translated anew where calls are written otherwise", () => {
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
