// Checks a user's answer to a question of a tool. The data must match the schema of the question (MCP elicitation: an object of
// strings, numbers, booleans and lists of choices). Regex patterns of the schema are ignored, because they come from other
// servers.
import { ServerError } from "../../runtime/errors.ts";
import type { AnswerValue, QuestionSchema } from "../api/agent/questions.ts";

type Answer = Readonly<Record<string, AnswerValue>>;
type Rules = Readonly<Record<string, unknown>>;

/** Throws invalid_value with the name of the invalid field. `schema`: null if the approval requests no data. */
export function checkAnswer(schema: QuestionSchema | null, content: Answer | null): void {
  if (schema === null) {
    if (content === null) return;
    throw wrong("content", "expects nothing: this approval asks for no data");
  }
  const answer = content ?? {};
  for (const name of Object.keys(answer)) {
    if (!Object.hasOwn(schema.properties, name)) throw wrong(`content.${name}`, "is not a field of requested_schema");
  }
  for (const [name, property] of Object.entries(schema.properties)) {
    const rules = (property ?? {}) as Rules;
    const value = Object.hasOwn(answer, name) ? answer[name] : undefined;
    if (value !== undefined) checkValue(`content.${name}`, rules, value);
    // A field with a default may be omitted: the server that asked then uses its default.
    else if (schema.required.includes(name) && rules.default === undefined) {
      throw wrong(`content.${name}`, "is required by requested_schema");
    }
  }
}

function checkValue(path: string, rules: Rules, value: AnswerValue): void {
  const { type } = rules;
  if (type === "boolean") expect(typeof value === "boolean", path, "a boolean", value);
  else if (type === "integer") expect(Number.isInteger(value), path, "an integer", value);
  else if (type === "number") expect(typeof value === "number", path, "a number", value);
  else if (type === "array") expect(Array.isArray(value), path, "a list of strings", value);
  else expect(typeof value === "string", path, "a string", value);
  if (typeof value === "number") checkRange(path, value, rules.minimum, rules.maximum, "");
  if (typeof value === "string") checkText(path, rules, value);
  if (typeof value === "object") checkList(path, rules, value);
}

function checkText(path: string, rules: Rules, value: string): void {
  checkRange(path, value.length, rules.minLength, rules.maxLength, " characters");
  const choices = choicesOf(rules);
  if (choices !== null) expect(choices.includes(value), path, `one of ${choices.join(", ")}`, value);
  if (typeof rules.format === "string")
    expect(hasFormat(value, rules.format), path, `the format ${rules.format}`, value);
}

function checkList(path: string, rules: Rules, values: readonly string[]): void {
  checkRange(path, values.length, rules.minItems, rules.maxItems, " entries");
  const choices = choicesOf((rules.items ?? {}) as Rules);
  if (choices === null) return;
  for (const value of values) expect(choices.includes(value), path, `entries of ${choices.join(", ")}`, value);
}

function checkRange(path: string, value: number, min: unknown, max: unknown, unit: string): void {
  if (typeof min === "number") expect(value >= min, path, `at least ${min}${unit}`, value);
  if (typeof max === "number") expect(value <= max, path, `at most ${max}${unit}`, value);
}

/** Returns the allowed values, from `enum` or from the constants in `oneOf` or `anyOf`; null = any value is allowed. */
function choicesOf({ enum: values, oneOf, anyOf }: Rules): readonly unknown[] | null {
  if (Array.isArray(values)) return values;
  const titled = oneOf ?? anyOf;
  return Array.isArray(titled) ? titled.map((choice: { readonly const?: unknown } | null) => choice?.const) : null;
}

function hasFormat(value: string, format: string): boolean {
  if (format === "email") return /^[^\s@]+@[^\s@]+$/.test(value);
  if (format === "uri") return URL.canParse(value);
  if (format === "date") return /^\d{4}-\d{2}-\d{2}$/.test(value) && !Number.isNaN(Date.parse(value));
  if (format === "date-time") return value.includes("T") && !Number.isNaN(Date.parse(value));
  return true;
}

function expect(holds: boolean, path: string, expected: string, value: unknown): void {
  if (!holds) throw wrong(path, `expects ${expected}; got ${JSON.stringify(value).slice(0, 200)}`);
}

function wrong(param: string, message: string): ServerError {
  return new ServerError("invalid_value", `${param} ${message}`, { param });
}
