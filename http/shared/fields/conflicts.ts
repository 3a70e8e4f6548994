// Conflicts: fields of a request that are valid alone and invalid together.
import type { z } from "zod";

/** `field`: path in the body; `message`: the problem. */
export type Conflict = readonly [field: string, message: string];

/** Adds an issue for each conflict to the refined object. */
export function addConflicts(context: z.RefinementCtx, conflicts: Iterable<Conflict>): void {
  for (const [field, message] of conflicts) context.addIssue({ code: "custom", message, params: { field } });
}

/** The conflict of a field and its alias if both are sent with different values. */
export function* differing<Value>(field: string, value: Value, other: string, otherValue: Value): Iterable<Conflict> {
  if (!isGiven(value) || !isGiven(otherValue) || value === otherValue) return;
  const said = `${JSON.stringify(value)} contradicts ${other}: ${JSON.stringify(otherValue)}`;
  yield [field, `${said}; send one of them`];
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
