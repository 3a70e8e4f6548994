import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkAnswer } from "../../../../actors/agent-loop/check-answer.ts";
import type { AnswerValue } from "../../../../actors/api/agent/questions.ts";

const titled = (...values: readonly string[]) => values.map((value) => ({ const: value, title: value.toUpperCase() }));
const schema = {
  properties: {
    name: { type: "string", minLength: 2, maxLength: 5 },
    color: { type: "string", enum: ["red", "blue"] },
    size: { type: "string", oneOf: titled("s", "m") },
    tags: { type: "array", items: { anyOf: titled("a", "b") }, maxItems: 1 },
    age: { type: "integer", minimum: 0, maximum: 150 },
    weight: { type: "number" },
    agrees: { type: "boolean" },
    home: { type: "string", format: "uri" },
    born: { type: "string", format: "date" },
    at: { type: "string", format: "date-time" },
    city: { type: "string", default: "Bonn" },
  },
  required: ["name", "city"],
};

describe("the check of an answer to a tool's question", () => {
  it("takes what fits; a required field with a default may be missing", () => {
    checkAnswer(schema, {
      ...{ name: "Ada", color: "red", size: "m", tags: ["a"], age: 36, weight: 50.5, agrees: false },
      ...{ home: "https://example.org", born: "1815-12-10", at: "1815-12-10T00:00:00Z" },
    });
    checkAnswer({ properties: {}, required: [] }, null);
    checkAnswer(null, null);
  });

  it("names the field that does not fit, and what it expects", () => {
    for (const [content, message] of [
      [{}, "content.name is required by requested_schema"],
      [{ name: "A" }, "content.name expects at least 2 characters; got 1"],
      [{ name: "Adalbert" }, "content.name expects at most 5 characters; got 8"],
      [{ name: true }, "content.name expects a string; got true"],
      [{ color: "green" }, 'content.color expects one of red, blue; got "green"'],
      [{ size: "l" }, 'content.size expects one of s, m; got "l"'],
      [{ tags: ["c"] }, 'content.tags expects entries of a, b; got "c"'],
      [{ tags: ["a", "b"] }, "content.tags expects at most 1 entries; got 2"],
      [{ tags: "a" }, 'content.tags expects a list of strings; got "a"'],
      [{ age: 1.5 }, "content.age expects an integer; got 1.5"],
      [{ age: 151 }, "content.age expects at most 150; got 151"],
      [{ weight: "5" }, 'content.weight expects a number; got "5"'],
      [{ agrees: "yes" }, 'content.agrees expects a boolean; got "yes"'],
      [{ home: "no url" }, 'content.home expects the format uri; got "no url"'],
      [{ born: "1815-13-40" }, 'content.born expects the format date; got "1815-13-40"'],
      [{ at: "1815-12-10" }, 'content.at expects the format date-time; got "1815-12-10"'],
      [{ other: 1 }, "content.other is not a field of requested_schema"],
      [{ toString: "x" }, "content.toString is not a field of requested_schema"],
    ] as readonly [Record<string, AnswerValue>, string][]) {
      const answer = "name" in content || message.includes("required") ? content : { name: "Ada", ...content };
      assert.throws(() => checkAnswer(schema, answer), { code: "invalid_value", message });
    }
    assert.throws(() => checkAnswer(null, {}), /content expects nothing: this approval asks for no data/);
  });
});
