// Checked schema: the schema of a tool's arguments as the model sees it, and the check of the arguments of a call.
import { z } from "zod";
import { schemaCheck } from "../../../engines/text/constraints/json-schema/check.ts";
import type { ToolSchema } from "./tool.ts";

type Checked = { readonly args: unknown } | { readonly problem: string };

export interface CheckedSchema {
  /** JSON schema for the model. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Checks arguments in JSON. Returns the values for the tool, or the reason why they do not match. */
  check(text: string): Promise<Checked>;
}

/** Returns the checked schema. Throws an error with the reason if the schema cannot be used. */
export function checkedSchema(schema: ToolSchema): CheckedSchema {
  if (typeof schema !== "object" || schema === null)
    throw new Error(`expected an object, got ${JSON.stringify(schema)}`);
  return isZod(schema) ? zodSchema(schema) : jsonSchema(schema);
}

/**
 * Returns whether a schema is a schema of zod 4: only these have the field `_zod`. Does not use `instanceof`, because the
 * embedding program may have its own copy of zod.
 */
function isZod(schema: ToolSchema): schema is z.ZodObject {
  return "_zod" in schema;
}

function zodSchema(schema: z.ZodObject): CheckedSchema {
  // The schema for the model describes the input of zod's transformations: for example, a field that has a default may be
  // omitted.
  const { $schema: _, ...parameters } = z.toJSONSchema(schema, { io: "input" });
  return {
    parameters: requireObject(parameters),
    check: async (text) => {
      const value = jsonOf(text);
      if (value === undefined) return notJson;
      const { data, error } = await schema.safeParseAsync(value);
      return error === undefined ? { args: data } : { problem: z.prettifyError(error) };
    },
  };
}

function jsonSchema(schema: Readonly<Record<string, unknown>>): CheckedSchema {
  const parameters = requireObject(schema);
  const problemOf = schemaCheck(parameters, "the object of arguments");
  return {
    parameters,
    check: async (text) => {
      const problem = problemOf(text);
      return problem === null ? { args: JSON.parse(text) } : { problem };
    },
  };
}

function requireObject(parameters: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (parameters.type === "object") return parameters;
  throw new Error(`expected the schema of an object (type "object"), got type ${JSON.stringify(parameters.type)}`);
}

const notJson: Checked = { problem: "the object of arguments is not complete JSON" };

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
