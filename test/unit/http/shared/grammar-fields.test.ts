import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { askedRequest, chatRequestSchema } from "../../../../http/chat/request.ts";
import { describeIssue, parsed } from "../../../../http/issues.ts";

function grammarOf(fields: Readonly<Record<string, unknown>>): unknown {
  const body = parsed(chatRequestSchema, { messages: "hi", ...fields });
  if (body.success) return askedRequest(body.data).grammar;
  return describeIssue(body.error.issues).message;
}

const nested = (levels: number): object => (levels === 0 ? {} : { not: nested(levels - 1) });
const schema = { type: "object", properties: { a: { type: "integer" } } };

describe("the output grammar of a request", () => {
  it("accepts a schema of the maximum size", () => {
    const value = nested(100);
    assert.deepEqual(grammarOf({ grammar: { type: "json_schema", value } }), {
      kind: "json_schema",
      schema: value,
      field: "grammar",
    });
  });

  it("is null for text", () => {
    assert.equal(grammarOf({}), null);
    assert.equal(grammarOf({ response_format: { type: "text" }, grammar: null }), null);
  });

  it("is JSON or a schema for a response format", () => {
    assert.deepEqual(grammarOf({ response_format: { type: "json_object" } }), { kind: "json" });
    const format = { type: "json_schema", json_schema: { name: "n", strict: true, description: "d", schema } };
    const field = "response_format";
    assert.deepEqual(grammarOf({ response_format: format }), { kind: "json_schema", schema, field });
  });

  it("is a schema beside json_object, or in json_schema, as llama.cpp's clients send it", () => {
    const found = (field: string) => ({ kind: "json_schema", schema, field });
    assert.deepEqual(grammarOf({ response_format: { type: "json_object", schema } }), found("response_format"));
    assert.deepEqual(grammarOf({ json_schema: schema }), found("json_schema"));
  });

  it("is a GBNF or a Lark grammar if it is text", () => {
    for (const grammar of ['root ::= "a"', '# a comment\nroot\n::= "a"', 'start: "::="']) {
      const kind = grammar.startsWith("start") ? "lark" : "gbnf";
      assert.deepEqual(grammarOf({ grammar }), { kind, grammar });
      assert.deepEqual(grammarOf({ guided_grammar: grammar }), { kind, grammar });
    }
  });

  it("is one of five kinds of grammar", () => {
    assert.deepEqual(grammarOf({ grammar: { type: "gbnf", value: "root ::= [a]" } }), {
      kind: "gbnf",
      grammar: "root ::= [a]",
    });
    assert.deepEqual(grammarOf({ grammar: { type: "regex", value: "a+" } }), { kind: "regex", pattern: "a+" });
    assert.deepEqual(grammarOf({ grammar: { type: "lark", value: "start: /a/" } }), {
      kind: "lark",
      grammar: "start: /a/",
    });
    assert.deepEqual(grammarOf({ grammar: { type: "llguidance", value: "start: /a/" } }), {
      kind: "llguidance",
      grammar: "start: /a/",
    });
    assert.deepEqual(grammarOf({ grammar: { type: "json_schema", value: schema } }), {
      kind: "json_schema",
      schema,
      field: "grammar",
    });
    assert.deepEqual(grammarOf({ grammar: { type: "json_schema", value: JSON.stringify(schema) } }), {
      kind: "json_schema",
      schema,
      field: "grammar",
    });
  });

  for (const [fields, problem] of [
    [
      { response_format: { type: "xml" } },
      /^response_format\S*: expected one of "text", "json_object", "json_schema", got "xml"/,
    ],
    [{ response_format: { type: "json_schema" } }, /^response_format\.json_schema: expected an object, got nothing/],
    [
      { response_format: { type: "json_schema", json_schema: { name: "n" } } },
      /^response_format\.json_schema\.schema: expected a JSON schema, got nothing/,
    ],
    [{ grammar: { type: "abnf", value: "" } }, /^grammar\S*: expected one of "regex"/],
    [{ grammar: { type: "regex", value: "" } }, /^grammar\.value: expected a string that is not empty/],
    [{ grammar: 5 }, /^grammar: expected a grammar, got 5/],
    [{ grammar: "" }, /^grammar: expected a string that is not empty/],
    [
      { grammar: { type: "regex", value: "a" }, response_format: { type: "json_object" } },
      /^grammar: cannot be combined with response_format/,
    ],
    [{ grammar: { type: "regex", value: "a" }, ignore_eos: true }, /^ignore_eos: cannot be combined with a grammar/],
    [{ response_format: { type: "json_object" }, ignore_eos: true }, /^ignore_eos: cannot be combined/],
    [{ grammar: { type: "json_schema", value: nested(101) } }, /^grammar: expected a schema of at most.* 100 deep/],
    [{ grammar: { type: "json_schema", value: JSON.stringify(nested(101)) } }, /^grammar: .* 100 deep/],
    [
      { response_format: { type: "json_schema", json_schema: { schema: { enum: Array(50_000).fill(0) } } } },
      /^response_format: .*50000 values/,
    ],
  ] as const) {
    it(`is refused by field: ${JSON.stringify(fields).slice(0, 100)}`, () => {
      assert.match(String(grammarOf(fields)), problem);
    });
  }
});
