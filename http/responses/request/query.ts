// Owns what the routes of one response may be asked behind the `?`: the schemas, and how they are read. What is not known
// there is let be: clients send options of the vendor's that change nothing here.
import { z } from "zod";
import { describeIssue, expectation, expected } from "../../issues.ts";

const flag = z.enum(["true", "false"]).optional();
const included = z
  .string()
  .optional()
  .meta({ description: "Taken, and changes nothing: all there is is shown", support: "ignored" });

export const retrieveQuery = z.object({
  stream: flag.meta({ description: "Its events instead, of one that was created with background and stream; false" }),
  starting_after: z
    .string()
    .regex(/^\d{1,15}$/, { error: expected("the number of an event") })
    .optional()
    .meta({ description: "With stream: only the events after the one of this number" }),
  include: included,
  include_obfuscation: included,
});

export const inputItemsQuery = z.object({
  limit: z
    .string()
    .regex(/^(?:[1-9]\d?|100)$/, { error: expected("a number from 1 to 100") })
    .optional()
    .meta({ description: "Most items of one page; 20" }),
  order: z.enum(["asc", "desc"]).optional().meta({ description: "desc: the last item first, as left out" }),
  after: z.string().max(256).optional().meta({ description: "Id of an item: only those that come after it" }),
  include: included,
});

/** Of a parameter that comes several times the last one counts. */
export function readQuery<Schema extends z.ZodObject>(query: string, schema: Schema): z.output<Schema> {
  const given = Object.fromEntries(new URLSearchParams(query));
  const result = z.safeParse(schema, given, { error: expectation });
  if (result.success) return result.data;
  throw describeIssue(result.error.issues, Object.keys(schema.shape));
}
