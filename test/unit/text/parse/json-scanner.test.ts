import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { JsonScanner } from "../../../../engines/text/parse/json-scanner.ts";

/** Returns whether the scanner finds exactly one object in the text. */
function isWhole(pieces: readonly string[]): boolean {
  const scanner = new JsonScanner();
  return pieces.every((piece) => scanner.scan(piece, 0) === piece.length) && scanner.isWhole;
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

const object = fc
  .tuple(fc.dictionary(fc.string(), fc.jsonValue()), fc.constantFrom(0, 1, 2))
  .map(([value, indent]) => JSON.stringify(value, null, indent));

test("a complete object is recognized in one piece and character by character", () => {
  fc.assert(
    fc.property(object, (text) => {
      assert.ok(isWhole([text]));
      assert.ok(isWhole(text.split("")));
    }),
  );
});

test("a mutated object is valid for the scanner exactly if it is for JSON.parse", () => {
  const change = fc.constantFrom("", "{", "}", "[", "]", '"', ",", ":", "0", "-", ".", "e", "+", "\\", "u", "t", "\n");
  fc.assert(
    fc.property(object, fc.nat(), fc.nat(2), change, (text, position, removed, added) => {
      const at = position % text.length;
      const changed = text.slice(0, at) + added + text.slice(at + removed);
      // The scanner does not accept white space around an object.
      fc.pre(changed.trim() === changed);
      assert.equal(isWhole([changed]), isObject(changed), changed);
      assert.equal(isWhole(changed.split("")), isObject(changed), changed);
    }),
    { numRuns: 500 },
  );
});

test("numbers and words are those of JSON, and no others", () => {
  const values = [
    "0",
    "-0",
    "10",
    "01",
    "1.",
    "1.5",
    ".5",
    "-",
    "1e5",
    "1E+05",
    "1e",
    "1e-",
    "+1",
    "true",
    "tru",
    "nul",
    "NaN",
  ];
  for (const value of values) {
    for (const text of [`{"a":${value}}`, `{"a":[${value} , 1]}`]) assert.equal(isWhole([text]), isObject(text), text);
  }
});

test("it stops after the object and at the first invalid character", () => {
  assert.equal(new JsonScanner().scan('x{"a":1} {', 1), 8);
  assert.equal(new JsonScanner().scan('{"a":tru}', 0), 8);
  assert.equal(new JsonScanner().scan('{"a":1x}', 0), 6);
  assert.equal(new JsonScanner().scan("[1]", 0), 0);
});

test("arguments that are nested too deeply are refused", () => {
  const nested = (depth: number) => `{"a":${"[".repeat(depth)}${"]".repeat(depth)}}`;
  assert.ok(isWhole([nested(100)]));
  assert.ok(!isWhole([nested(200)]));
});
