// Owns the check of a finished text against its whole schema, where the grammar could not enforce all of it. The only importer
// of ajv. It fetches nothing, and the patterns of the schema are matched by automata: no text can hold up the thread.
import { Ajv2020, type ErrorObject } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { accepts } from "../regex/automaton.ts";
import { automatonOf } from "../regex/determinise.ts";
import { parseRegex } from "../regex/parse.ts";
import { schemaError } from "./document.ts";

/** Why a text is no answer, or null. */
export type Check = (text: string) => string | null;

/** Decimal places to which multiples are told apart: 0.07 / 0.01 is no integer in floating point. */
const multiplePrecision = 6;

export function schemaCheck(schema: unknown): Check {
  const matches = compiled(schema);
  return (text) => {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return "the output is not complete JSON";
    }
    return matches(value) ? null : reason(matches.errors?.[0]);
  };
}

function compiled(schema: unknown) {
  const ajv = new Ajv2020({
    strict: false,
    logger: false,
    validateSchema: false,
    multipleOfPrecision: multiplePrecision,
    code: { regExp: linearRegExp },
  });
  addFormats.default(ajv);
  try {
    return ajv.compile(schema as object | boolean);
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    throw schemaError("invalid_value", "", message);
  }
}

/** Takes the place of the runtime's regular expressions, which can take for ever. */
const linearRegExp = Object.assign(
  (pattern: string) => {
    const automaton = automatonOf(parseRegex(pattern), "anywhere");
    // By its text ajv tells one pattern from another.
    return { test: (text: string) => accepts(automaton, text), toString: () => pattern };
  },
  { code: "linearRegExp" },
);

function reason(error: ErrorObject | undefined): string {
  if (error === undefined) return "the output does not match the schema";
  const where = error.instancePath === "" ? "the output" : `the output at ${error.instancePath}`;
  return `${where} ${error.message ?? `fails ${error.keyword}`}`;
}
