// Owns the request fields that say what the whole output must be: `response_format` and `grammar`, as schemas, and the one
// OutputGrammar they come to. What they hold is translated further down; here they are only read.
import { z } from "zod";
import type { OutputGrammar } from "../../../engines/generation.ts";
import { expected, expectedVariant } from "../../issues.ts";
import { isBounded, ofWholeSchemas, tooLarge } from "./bounded.ts";
import type { Conflict } from "./conflicts.ts";

const MAX_GRAMMAR_LENGTH = 262_144;
const grammarText = z.string().min(1).max(MAX_GRAMMAR_LENGTH);
/** A schema, which some clients send as text. */
const schema = z.union([z.record(z.string(), z.unknown()), z.boolean(), grammarText], {
  error: expected("a JSON schema"),
});

const formatTypes = ["text", "json_object", "json_schema"];
const grammarTypes = ["regex", "json_schema", "lark", "llguidance"];

export const responseFormat = z
  .discriminatedUnion(
    "type",
    [
      z.strictObject({ type: z.literal("text") }),
      z.strictObject({ type: z.literal("json_object") }),
      z.strictObject({
        type: z.literal("json_schema"),
        json_schema: z.strictObject({
          name: z.string().max(64).nullish(),
          description: z.string().nullish(),
          schema,
          strict: z.boolean().nullish().meta({ description: "The schema is enforced, whatever this says" }),
        }),
      }),
    ],
    { error: expectedVariant("a response format", "type", formatTypes) },
  )
  .nullish()
  .meta({ description: "What the whole answer must be; left out: text" });

export const grammarField = z
  .discriminatedUnion(
    "type",
    [
      z.strictObject({ type: z.literal("regex"), value: grammarText }),
      z.strictObject({ type: z.literal("json_schema"), value: schema }),
      z.strictObject({ type: z.literal("lark"), value: grammarText }),
      z.strictObject({ type: z.literal("llguidance"), value: grammarText }),
    ],
    { error: expectedVariant("a grammar", "type", grammarTypes) },
  )
  .nullish()
  .meta({ description: "A grammar that the whole answer follows; not together with response_format" });

interface GrammarFields {
  readonly grammar?: z.output<typeof grammarField>;
  readonly response_format?: z.output<typeof responseFormat>;
  readonly ignore_eos?: boolean | null | undefined;
}

/** What the output must be; null where it is free text. */
export function outputGrammar({ grammar, response_format: format }: GrammarFields): OutputGrammar | null {
  if (grammar !== null && grammar !== undefined) {
    switch (grammar.type) {
      case "regex":
        return { kind: "regex", pattern: grammar.value };
      case "json_schema":
        return { kind: "json_schema", schema: schemaOf(grammar.value), field: "grammar" };
      default:
        return { kind: grammar.type, grammar: grammar.value };
    }
  }
  if (format?.type === "json_object") return { kind: "json" };
  if (format?.type !== "json_schema") return null;
  return { kind: "json_schema", schema: schemaOf(format.json_schema.schema), field: "response_format" };
}

function isTooLarge(schema: unknown): boolean {
  return typeof schema === "object" && schema !== null && !isBounded(schema, ofWholeSchemas);
}

/** Text that is no JSON stays text, which the translation refuses as a schema. */
function schemaOf(value: unknown): unknown {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/** What contradicts a grammar: another one, and going on where it has ended. */
export function* grammarConflicts(fields: GrammarFields): Iterable<Conflict> {
  const demanded = outputGrammar(fields);
  if (demanded === null) return;
  if (demanded.kind === "json_schema" && isTooLarge(demanded.schema)) {
    yield [demanded.field, tooLarge("a schema", ofWholeSchemas)];
  }

  const format = fields.response_format?.type ?? "text";
  if (fields.grammar && format !== "text") {
    yield ["grammar", "cannot be combined with response_format; send one of them"];
  }
  if (fields.ignore_eos === true) {
    yield ["ignore_eos", "cannot be combined with a grammar or response_format: the output ends where they end"];
  }
}
