// Accepted body: validates the body of an inference request. Rejects an unknown field if the setting `unknown_fields` is
// "refuse", or if its name looks like a misspelt known name. Otherwise, removes the field and reports it.
import type { z } from "zod";
import { misspelt } from "../../runtime/nearest.ts";
import { describeIssue, type Issue, located, parsed, unknownFieldError } from "../issues.ts";
import { type IgnoredField, ignoredFields } from "./ignored.ts";
import type { UnknownFields } from "./unknown-fields.ts";

/** Field names of other APIs that must not count as misspelt names of this server's fields. */
const othersNames = new Set(["top_a", "models", "mode", "speed", "max_tokens"]);

interface Accepted<Body> {
  readonly body: Body;
  /** Fields of the body that have no effect, including unknown fields. */
  readonly ignored: readonly IgnoredField[];
}

/** Validates a parsed body. May change it. Throws a ServerError that names the invalid field. */
export function acceptedBody<Schema extends z.ZodObject>(
  schema: Schema,
  value: unknown,
  unknownFields: UnknownFields,
): Accepted<z.output<Schema>> {
  const unknown = new Set<string>();
  let result = parsed(schema, value);
  // The body is validated again after each removal of unknown fields. These fields may have hidden other issues and, within a
  // union, further unknown fields.
  while (!result.success && unknownFields === "ignore") {
    if (!removeUnknown(value, result.error.issues, unknown)) break;
    result = parsed(schema, value);
  }
  if (!result.success) throw describeIssue(result.error.issues);
  const others = [...unknown].map((path) => ({ path, description: null }));
  return { body: result.data, ignored: [...ignoredFields(schema, result.data), ...others] };
}

/** Removes the unknown fields of a body and adds their paths to `removed`. Returns false if there are none. */
function removeUnknown(value: unknown, issues: readonly Issue[], removed: Set<string>): boolean {
  const found = [...located(issues)].flatMap(({ path, issue }) =>
    issue.code === "unrecognized_keys" ? [{ path, keys: issue.keys, known: issue.message.split(",") }] : [],
  );
  let removedAny = false;
  for (const { path, keys, known } of found) {
    const target = path.reduce<unknown>((inner, key) => (inner as Record<PropertyKey, unknown>)[key], value) as object;
    for (const key of keys) {
      if (!othersNames.has(key) && misspelt(key, known) !== null) throw unknownFieldError(path, key, known);
      removedAny ||= Object.hasOwn(target, key);
      Reflect.deleteProperty(target, key);
      removed.add(pathOf([...path, key]));
    }
  }
  return removedAny;
}

/** Returns a path without array indices: `messages[].mood`. */
function pathOf(path: readonly PropertyKey[]): string {
  const steps = path.map((key) => (typeof key === "number" ? "[]" : `.${String(key).slice(0, MAX_NAME_LENGTH)}`));
  return steps.join("").slice(1);
}

const MAX_NAME_LENGTH = 60;
