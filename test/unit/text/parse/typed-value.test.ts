import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonTyped, mayOnlyBeString, parameterTypes } from "../../../../engines/text/parse/typed-value.ts";

const parameters = {
  properties: {
    text: { type: "string" },
    count: { type: "integer" },
    either: { anyOf: [{ type: "string" }, { type: "null" }] },
    several: { type: ["string", "number"] },
    colour: { enum: ["red", "green"] },
    flag: { type: "boolean" },
    unclear: { $ref: "#/$defs/x" },
    only: { const: null },
    size: { $ref: "#/$defs/Size" },
    wish: { anyOf: [{ $ref: "#/$defs/Size" }, { type: "null" }] },
    endless: { $ref: "#/properties/endless" },
  },
  $defs: { Size: { type: "string", enum: ["1", "2"] } },
};

function typed(key: string, text: string): string {
  return jsonTyped(text, parameterTypes(parameters, key));
}

test("a parameter that can only be a string is recognized", () => {
  const isString = (key: string) => mayOnlyBeString(parameterTypes(parameters, key));
  assert.deepEqual(["text", "colour"].map(isString), [true, true]);
  assert.deepEqual(["count", "either", "several", "flag", "unclear", "missing", "toString"].some(isString), false);
});

test("text is JSON if it is JSON of an allowed type, else a string", () => {
  assert.equal(typed("text", "42"), '"42"');
  assert.equal(typed("count", " 42\n"), "42");
  assert.equal(typed("count", "many"), '"many"');
  assert.equal(typed("either", "null"), "null");
  assert.equal(typed("either", "true"), '"true"');
  assert.equal(typed("several", "4.5"), "4.5");
  assert.equal(typed("several", "[1]"), '"[1]"');
});

test("a reference has the types of the part of the schema to which it points", () => {
  assert.ok(mayOnlyBeString(parameterTypes(parameters, "size")));
  assert.equal(typed("size", "2"), '"2"');
  assert.equal(typed("wish", "2"), '"2"');
  assert.equal(typed("wish", "null"), "null");
  assert.equal(typed("endless", "2"), "2");
});

test("if the schema does not say, text is JSON if it can be parsed", () => {
  assert.equal(typed("unclear", '{"a": 1}'), '{"a": 1}');
  assert.equal(typed("missing", "two words"), '"two words"');
  assert.equal(jsonTyped("1", parameterTypes(null, "a")), "1");
});

test("Python words are read if a type is known", () => {
  assert.equal(typed("flag", "True"), "true");
  assert.equal(typed("only", "None"), "null");
  assert.equal(typed("text", "None"), '"None"');
  assert.equal(typed("missing", "True"), '"True"');
});
