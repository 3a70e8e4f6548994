// Conflicts: combinations of request fields that are invalid although each field is valid.
import type { z } from "zod";

/** `field`: path in the body; `message`: description of the problem. */
export type Conflict = readonly [field: string, message: string];

/** Adds a validation issue for each conflict. */
export function addConflicts(context: z.RefinementCtx, conflicts: Iterable<Conflict>): void {
  for (const [field, message] of conflicts) context.addIssue({ code: "custom", message, params: { field } });
}

/** Yields a conflict if a field and its alias are both sent with different values. */
export function* differing<Value>(field: string, value: Value, other: string, otherValue: Value): Iterable<Conflict> {
  if (!isGiven(value) || !isGiven(otherValue) || value === otherValue) return;
  const said = `${JSON.stringify(value)} contradicts ${other}: ${JSON.stringify(otherValue)}`;
  yield [field, `${said}; send one of them`];
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
