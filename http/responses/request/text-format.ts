// Request field `text` of POST /v1/responses: schema of the output format, which is flat in this protocol, and its translation
// to the format of `response_format`.
import { z } from "zod";
import { expected, expectedVariant } from "../../issues.ts";
import { ignored } from "../../shared/fields/fields.ts";
import type { responseFormat } from "../../shared/fields/grammar-fields.ts";
import { verbosityField } from "../../shared/fields/openai-fields.ts";

const MAX_NAME_LENGTH = 64;
const MAX_DESCRIPTION_LENGTH = 65_536;
const types = ["text", "json_object", "json_schema"];

const format = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("text") }),
    z.strictObject({ type: z.literal("json_object") }),
    z.strictObject({
      type: z.literal("json_schema"),
      name: z.string().max(MAX_NAME_LENGTH).nullish(),
      description: z.string().max(MAX_DESCRIPTION_LENGTH).nullish(),
      schema: z.union([z.record(z.string(), z.unknown()), z.boolean()], { error: expected("a JSON schema") }),
      strict: ignored(z.boolean(), "the schema is always enforced"),
    }),
  ],
  { error: expectedVariant("a text format", "type", types) },
);

export const textField = z
  .strictObject({
    format: format.nullish().meta({ description: "Format of the text, enforced by a grammar." }),
    verbosity: verbosityField,
  })
  .nullish();

type TextField = z.output<typeof textField>;
type ResponseFormat = z.output<typeof responseFormat>;

export function textFormat(text: TextField): ResponseFormat {
  const asked = text?.format;
  if (asked?.type !== "json_schema") return asked;
  const { type, name, description, schema, strict } = asked;
  return { type, json_schema: { name, description, schema, strict } };
}

/** Builds the field `text` of a response from the request's `text` or `response_format`. */
export function wireText(text: TextField, asked: ResponseFormat): object {
  const verbosity = text?.verbosity ?? "medium";
  const format = textFormat(text) ?? asked ?? { type: "text" };
  if (format.type !== "json_schema") return { format, verbosity };
  const { name, description, schema, strict } = format.json_schema;
  // A response always has all these fields, because clients validate them.
  const shown = { name: name ?? "response", description: description ?? null, schema, strict: strict ?? true };
  return { format: { type: format.type, ...shown }, verbosity };
}
