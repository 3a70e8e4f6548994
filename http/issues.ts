// Issues: converts validation issues of a request body to one ServerError. Error messages that a schema defines are kept.
import { z } from "zod";
import { type ErrorCode, ServerError } from "../runtime/errors.ts";
import { suggestion } from "../runtime/nearest.ts";

export type Issue = z.core.$ZodIssue;
type RawIssue = z.core.$ZodRawIssue;

const typeNames: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "an integer",
  boolean: "true or false",
  array: "an array",
  object: "an object",
  record: "an object",
};

/** Returns a short description of a value, for an error message. */
function picture(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return JSON.stringify(clip(value));
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : `an array of ${value.length}`;
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}

/** Shortens a name or value that the client sent, so that an error message is never megabytes long. */
function clip(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** Returns a function that creates the error message of a schema. `what`: the expected value, in words. */
export function expected(what: string): (issue: RawIssue) => string {
  return (issue) => `expected ${what}, got ${picture(issue.input)}`;
}

/** Returns a function that creates the error message of a union of objects with the discriminator `field`. */
export function expectedVariant(what: string, field: string, values: readonly string[]): (issue: RawIssue) => string {
  return (issue) => {
    if (issue.code !== "invalid_union") return expected(what)(issue);
    const got = (issue.input as Readonly<Record<string, unknown>>)[field];
    return `expected ${oneOf(values)}, got ${picture(got)}`;
  };
}

/** Parses a value, with the error messages that describeIssue expects. */
export function parsed<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
): z.ZodSafeParseResult<z.output<Schema>> {
  return z.safeParse(schema, value, { error: expectation });
}

/**
 * Returns the error message of an issue whose schema defines none: what was expected and what was received. For an issue about
 * unknown fields, the message is the list of the known names of the object, separated by commas; describeIssue parses this
 * list.
 */
function expectation(issue: RawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return expected(typeNames[issue.expected] ?? issue.expected)(issue);
    case "invalid_value":
      return expected(oneOf(issue.values))(issue);
    case "too_small":
      return expected(bound(issue.origin, issue.inclusive ? "at least" : "more than", issue.minimum))(issue);
    case "too_big":
      return expected(bound(issue.origin, "at most", issue.maximum))(issue);
    case "unrecognized_keys":
      return Object.keys(issue.inst instanceof z.ZodObject ? issue.inst.shape : {}).join(",");
    case "invalid_key":
      return issue.issues[0]?.message;
    default:
      return undefined;
  }
}

/**
 * Builds the error of an invalid body from its first issue. If that issue is about a union, the issue with the longest path
 * among the union's branches is used.
 */
export function describeIssue(issues: readonly Issue[]): ServerError {
  const { path, issue } = deepest({ path: [], issue: issues[0] as Issue });
  if (issue.code === "unrecognized_keys") {
    return unknownFieldError(path, issue.keys[0] as string, issue.message.split(","));
  }
  const isUnsupported = issue.code === "custom" && issue.params?.code === "unsupported";
  const at = issue.code === "custom" && typeof issue.params?.field === "string" ? [...path, issue.params.field] : path;
  return fieldError(isUnsupported ? "unsupported" : "invalid_value", at, issue.message);
}

/** Creates the error for an unknown field. Its message suggests the most similar known name. */
export function unknownFieldError(path: readonly PropertyKey[], key: string, known: readonly string[]): ServerError {
  const message = `there is no such field here${suggestion(clip(key), known)}`;
  return fieldError("invalid_value", [...path, key], message);
}

/** Yields all issues with their complete paths, including issues in the branches of unions. */
export function* located(issues: readonly Issue[], before: readonly PropertyKey[] = []): Iterable<Located> {
  for (const issue of issues) {
    const path = [...before, ...issue.path];
    if (issue.code !== "invalid_union") yield { path, issue };
    else for (const branch of matching(issue.errors)) yield* located(branch, path);
  }
}

/** Returns the branches of a union that accept the type of the value. Issues of all other branches are meaningless. */
function matching<Branch extends readonly Issue[]>(branches: readonly Branch[]): readonly Branch[] {
  return branches.filter((branch) => !branch.some(({ code, path }) => code === "invalid_type" && path.length === 0));
}

interface Located {
  readonly path: readonly PropertyKey[];
  readonly issue: Issue;
}

/** Returns the issue with the longest path among the branches of a union, because it is the most specific one. */
function deepest(from: { path: readonly PropertyKey[]; issue: Issue }): Located {
  const here = { path: [...from.path, ...from.issue.path], issue: from.issue };
  if (from.issue.code !== "invalid_union") return here;
  let best: Located = here;
  for (const branch of matching(from.issue.errors)) {
    for (const inner of branch) {
      const found = deepest({ path: here.path, issue: inner });
      if (best === here || found.path.length > best.path.length) best = found;
    }
  }
  return best;
}

function fieldError(code: ErrorCode, path: readonly PropertyKey[], message: string): ServerError {
  const param = fieldPath(path);
  return param === ""
    ? new ServerError(code, `the body: ${message}`)
    : new ServerError(code, `${param}: ${message}`, { param });
}

/** Returns a path in OpenAI's notation: `messages[0].content`. */
function fieldPath(path: readonly PropertyKey[]): string {
  const steps = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${clip(String(key))}`));
  return steps.join("").replace(/^\./, "");
}

function oneOf(values: readonly unknown[]): string {
  const list = values.map((value) => JSON.stringify(value)).join(", ");
  return values.length === 1 ? list : `one of ${list}`;
}

function bound(origin: string, relation: string, limit: number | bigint): string {
  const isNotEmpty = limit === 1 && relation === "at least";
  if (origin === "string")
    return isNotEmpty ? "a string that is not empty" : `a string of ${relation} ${limit} characters`;
  if (origin === "array")
    return isNotEmpty ? "an array that is not empty" : `an array of ${relation} ${limit} elements`;
  return `a number of ${relation} ${limit}`;
}
