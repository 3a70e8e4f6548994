// Owns the words for a field that is wrong: from the validator's issues to one ServerError. The schemas' own messages,
// where they have one, are kept.
import type { z } from "zod";
import { type ErrorCode, ServerError } from "../runtime/errors.ts";

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

/** A short picture of a value for an error message. */
function picture(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}

/** For schemas: the message of a field that takes several types. */
export function expected(what: string): (issue: RawIssue) => string {
  return (issue) => `expected ${what}, got ${picture(issue.input)}`;
}

/** For schemas: the message of a union of objects told apart by `field`. */
export function expectedVariant(what: string, field: string, values: readonly string[]): (issue: RawIssue) => string {
  return (issue) => {
    if (issue.code !== "invalid_union") return expected(what)(issue);
    const got = (issue.input as Readonly<Record<string, unknown>>)[field];
    return `expected ${oneOf(values)}, got ${picture(got)}`;
  };
}

/** The message of any other issue: what was expected and what came. */
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

/** The error for a body that failed its schema: its first issue, as deep in the body as it goes. */
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

/** Of a union's failures the one that got furthest into the value says most. */
function deepest(from: { path: readonly PropertyKey[]; issue: Issue }): Located {
  const here = { path: [...from.path, ...from.issue.path], issue: from.issue };
  if (from.issue.code !== "invalid_union") return here;
  let best: Located = here;
  for (const branch of from.issue.errors) {
    for (const inner of branch) {
      const found = deepest({ path: here.path, issue: inner });
      const isDeeper = found.path.length > best.path.length;
      if (isDeeper || (best === here && found.issue.code !== "invalid_type")) best = found;
    }
  }
  return best;
}

function fieldError(code: ErrorCode, path: readonly PropertyKey[], message: string): ServerError {
  const param = path.join(".");
  return param === ""
    ? new ServerError(code, `the body: ${message}`)
    : new ServerError(code, `${param}: ${message}`, { param });
}

function unknownField(key: string, known: readonly string[]): string {
  const near = nearest(key, known);
  return `there is no such field here${near === undefined ? "" : `; did you mean ${near}?`}`;
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

/** The known word that is fewest edits away, if it is near enough to be what was meant. */
function nearest(word: string, known: readonly string[]): string | undefined {
  if (word.length > 64) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.ceil(word.length / 4)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitute = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitute, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
