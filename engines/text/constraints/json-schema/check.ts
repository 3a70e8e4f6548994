// Schema check: validates a finished text against the whole schema, because a grammar cannot enforce every
// keyword. Only this file imports ajv. No remote schema is fetched. Automata match the schema's patterns in linear
// time, so no text can stall the thread.
import { createRequire } from "node:module";
import type { ErrorObject } from "ajv/dist/2020.js";
import { accepts } from "../../../../runtime/regex/automaton.ts";
import { automatonOf } from "../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import { OutOfTime, spend, TooMuchWork } from "../../../../runtime/regex/work.ts";
import { schemaError } from "./document.ts";

/** Returns the reason why a text is invalid; null if it is valid. */
export type Check = (text: string) => string | null;

/** Loads ajv on first use, because few schemas need it and text workers should start quickly. */
const require = createRequire(import.meta.url);

/**
 * Number of decimal places to which `multipleOf` is checked. An exact check would fail, because 0.07 / 0.01 is not an
 * integer in floating point.
 */
const multiplePrecision = 6;

/**
 * Creates the check for a schema. `subject`: the words for the checked text in error messages. Throws
 * `invalid_value`, or `unsupported` if the schema is too large to be checked.
 */
export function schemaCheck(schema: unknown, subject = "the output"): Check {
  const matches = compiled(schema);
  return (text) => {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return `${subject} is not complete JSON`;
    }
    try {
      return matches(value) ? null : reason(matches.errors?.[0], subject);
    } catch (thrown) {
      if (thrown instanceof RangeError) return `${subject} is nested too deeply to be checked`;
      // The code that ajv generates fails for some schemas with `unevaluatedProperties`.
      if (thrown instanceof TypeError) return `${subject} cannot be checked against the schema`;
      throw thrown;
    }
  };
}

function compiled(schema: unknown) {
  chargeFor(schema);
  const { Ajv2020 } = require("ajv/dist/2020.js") as typeof import("ajv/dist/2020.js");
  const { default: addFormats } = require("ajv-formats") as typeof import("ajv-formats");
  // Inlining and optimizing are off, because both take time quadratic in the size of the schema.
  const ajv = new Ajv2020({
    strict: false,
    logger: false,
    validateSchema: false,
    meta: false,
    // Without this option, every object has the properties of its prototype, such as "constructor".
    ownProperties: true,
    inlineRefs: false,
    multipleOfPrecision: multiplePrecision,
    code: { regExp: linearRegExp, optimize: false },
  });
  addFormats(ajv);
  // The code that records which properties were evaluated fails for some schemas with `anyOf` and `patternProperties`.
  ajv.opts.unevaluated = JSON.stringify(schema).includes('"unevaluated');
  try {
    return ajv.compile(schema as object | boolean);
  } catch (thrown) {
    if (thrown instanceof TooMuchWork) throw thrown;
    if (thrown instanceof RangeError)
      throw schemaError("unsupported", "", "it is too large to be checked in a finished text");
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    throw schemaError("invalid_value", "", message);
  }
}

/**
 * Cost of compiling a schema with ajv, in units of work (runtime/regex/work.ts): fixed cost, cost per value in the
 * schema, and cost per pair of values.
 */
const unitsOfSchema = 2000;
const unitsOfValue = 50;
const unitsOfPair = 0.1;

/**
 * Charges the cost of compiling a schema to the work limit of the translation. Called before the compilation starts,
 * because a compilation cannot be interrupted. Throws `unsupported` if the cost exceeds the rest of the limit.
 */
function chargeFor(schema: unknown): void {
  const values = valuesIn(schema);
  try {
    spend(unitsOfSchema + unitsOfValue * values + unitsOfPair * values * values);
  } catch (thrown) {
    if (!(thrown instanceof TooMuchWork) || thrown instanceof OutOfTime) throw thrown;
    const problem = `with ${values} values it is too large to be checked in a finished text, but the grammar cannot enforce all of it`;
    throw schemaError("unsupported", "", problem);
  }
}

/** Keywords whose value is an object that maps names chosen by the client to schemas. */
const maps = new Set("properties patternProperties dependentSchemas $defs definitions".split(" "));

/**
 * Returns the number of values in the schema. The value of `const` counts as one value, and so does the list of `enum`.
 */
function valuesIn(schema: unknown): number {
  let count = 0;
  const todo = [{ value: schema, isMap: false }];
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    count++;
    const { value, isMap } = next;
    if (typeof value !== "object" || value === null) continue;
    for (const [key, inner] of Object.entries(value)) {
      if (isMap || (key !== "const" && key !== "enum")) todo.push({ value: inner, isMap: !isMap && maps.has(key) });
    }
  }
  return count;
}

/**
 * Creates the regular expressions for ajv. They match in linear time, while JavaScript's own regular expressions can
 * take exponential time.
 */
const linearRegExp = Object.assign(
  (pattern: string) => {
    const automaton = automatonOf(parseRegex(pattern), "anywhere");
    // ajv compares patterns by the text that toString() returns.
    return { test: (text: string) => accepts(automaton, text), toString: () => pattern };
  },
  { code: "linearRegExp" },
);

function reason(error: ErrorObject | undefined, subject: string): string {
  if (error === undefined) return `${subject} does not match the schema`;
  const where = error.instancePath === "" ? subject : `${subject} at ${error.instancePath}`;
  return `${where} ${error.message ?? `fails ${error.keyword}`}`;
}
