// Query parser. Unknown parameters are ignored, because clients send options that this server does not support.
import type { z } from "zod";
import { describeIssue, parsed } from "../issues.ts";

/** Parses a query string. If a parameter is repeated, its last value counts. Throws `invalid_value` with the parameter's name. */
export function readQuery<Schema extends z.ZodObject>(query: string, schema: Schema): z.output<Schema> {
  const given = Object.fromEntries(new URLSearchParams(query));
  const result = parsed(schema, given);
  if (result.success) return result.data;
  throw describeIssue(result.error.issues);
}
