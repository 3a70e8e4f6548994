// Issues: converts validation issues of a request body to one ServerError. Error messages that a schema defines are kept.
import type { z } from "zod";
import { type ErrorCode, ServerError } from "../runtime/errors.ts";
import { suggestion } from "../runtime/nearest.ts";

type Issue = z.core.$ZodIssue;
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

/** Returns a short description of a value for an error message. */
function picture(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return JSON.stringify(clip(value));
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}

/** Shortens a name or value that the client sent, so that an error message is never megabytes long. */
function clip(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** Creates the error message of a schema that accepts several types. */
export function expected(what: string): (issue: RawIssue) => string {
  return (issue) => `expected ${what}, got ${picture(issue.input)}`;
}

/** Creates the error message of a union of objects discriminated by `field`. */
export function expectedVariant(what: string, field: string, values: readonly string[]): (issue: RawIssue) => string {
  return (issue) => {
    if (issue.code !== "invalid_union") return expected(what)(issue);
    const got = (issue.input as Readonly<Record<string, unknown>>)[field];
    return `expected ${oneOf(values)}, got ${picture(got)}`;
  };
}

/** Returns the error message of an issue whose schema defines none: what was expected and what was received. */
export function expectation(issue: RawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return expected(typeNames[issue.expected] ?? issue.expected)(issue);
    case "invalid_value":
      return expected(oneOf(issue.values))(issue);
    case "too_small":
      return expected(bound(issue.origin, issue.inclusive ? "at least" : "more than", issue.minimum))(issue);
    case "too_big":
      return expected(bound(issue.origin, "at most", issue.maximum))(issue);
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
export function describeIssue(issues: readonly Issue[], knownFields: readonly string[]): ServerError {
  const { path, issue } = deepest({ path: [], issue: issues[0] as Issue });
  if (issue.code === "unrecognized_keys") {
    const key = issue.keys[0] as string;
    return fieldError("invalid_value", [...path, key], unknownField(key, path.length === 0 ? knownFields : []));
  }
  const isUnsupported = issue.code === "custom" && issue.params?.code === "unsupported";
  const at = issue.code === "custom" && typeof issue.params?.field === "string" ? [...path, issue.params.field] : path;
  return fieldError(isUnsupported ? "unsupported" : "invalid_value", at, issue.message);
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
  for (const branch of from.issue.errors) {
    // The value has a different type than this branch, so the branch's issues are meaningless.
    if (branch.some((issue) => issue.code === "invalid_type" && issue.path.length === 0)) continue;
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

/** Path in OpenAI's notation: `messages[0].content`. */
function fieldPath(path: readonly PropertyKey[]): string {
  const steps = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${clip(String(key))}`));
  return steps.join("").replace(/^\./, "");
}

function unknownField(key: string, known: readonly string[]): string {
  return `there is no such field here${suggestion(clip(key), known)}`;
}

function oneOf(values: readonly unknown[]): string {
  const list = values.map((value) => JSON.stringify(value)).join(", ");
  return values.length === 1 ? list : `one of ${list}`;
}

function bound(origin: string, relation: string, limit: number | bigint): string {
  const isNotEmpty = limit === 1 && relation === "at least";
  if (origin === "string")
    return isNotEmpty ? "a string that is not empty" : `a string of ${relation} ${limit} characters`;
  if (origin === "array") return isNotEmpty ? "an array that is not empty" : `an array of ${relation} ${limit}`;
  return `a number of ${relation} ${limit}`;
}
