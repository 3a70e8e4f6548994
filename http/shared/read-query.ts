// Query parser. Unknown parameters are ignored, because clients send options that this server does not support.
import type { z } from "zod";
import { describeIssue, parsed } from "../issues.ts";

/** Parses a query. If a parameter is repeated, its last value is used. Throws `invalid_value` that names the parameter. */
export function readQuery<Schema extends z.ZodObject>(query: string, schema: Schema): z.output<Schema> {
  const given = Object.fromEntries(new URLSearchParams(query));
  const result = parsed(schema, given);
  if (result.success) return result.data;
  throw describeIssue(result.error.issues);
}
