// Owns how a request says that its fields, each right alone, are wrong together. The schemas of the protocols refuse with it.
import type { z } from "zod";

/** A field, by its path in the body, and what is wrong with it. */
export type Conflict = readonly [field: string, message: string];

/** Makes an issue of each, on the object that is refined. */
export function addConflicts(context: z.RefinementCtx, conflicts: Iterable<Conflict>): void {
  for (const [field, message] of conflicts) context.addIssue({ code: "custom", message, params: { field } });
}

/** Of a field and another name of it, where both are sent and say different things. */
export function* differing<Value>(field: string, value: Value, other: string, otherValue: Value): Iterable<Conflict> {
  if (!isGiven(value) || !isGiven(otherValue) || value === otherValue) return;
  const said = `${JSON.stringify(value)} contradicts ${other}: ${JSON.stringify(otherValue)}`;
  yield [field, `${said}; send one of them`];
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
