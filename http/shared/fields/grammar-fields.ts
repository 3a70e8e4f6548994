// Structured outputs: the request fields for grammars, such as `response_format` and `grammar`, and their translation to one
// OutputGrammar. The grammar is compiled in engines/.
import { z } from "zod";
import type { OutputGrammar } from "../../../engines/generation.ts";
import { expected, expectedVariant } from "../../issues.ts";
import { isBounded, ofWholeSchemas, tooLarge } from "./bounded.ts";
import type { Conflict } from "./conflicts.ts";

const MAX_GRAMMAR_LENGTH = 262_144;
const grammarText = z.string().min(1).max(MAX_GRAMMAR_LENGTH);
/** JSON schema, as an object or as a text, which some clients send. */
const schema = z.union([z.record(z.string(), z.unknown()), z.boolean(), grammarText], {
  error: expected("a JSON schema"),
});

const formatTypes = ["text", "json_object", "json_schema"];
const grammarTypes = ["regex", "json_schema", "lark", "llguidance", "gbnf"];

export const responseFormat = z
  .discriminatedUnion(
    "type",
    [
      z.strictObject({ type: z.literal("text") }),
      z.strictObject({
        type: z.literal("json_object"),
        schema: schema.nullish().meta({ description: "JSON schema, as llama.cpp takes it; unset = any object." }),
      }),
      z.strictObject({
        type: z.literal("json_schema"),
        json_schema: z.strictObject({
          name: z.string().max(64).nullish(),
          description: z.string().nullish(),
          schema,
          strict: z.boolean().nullish().meta({ description: "No effect: the schema is always enforced." }),
        }),
      }),
    ],
    { error: expectedVariant("a response format", "type", formatTypes) },
  )
  .nullish()
  .meta({ description: "Format of the whole output; free text by default." });

const typedGrammar = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("regex"), value: grammarText }),
    z.strictObject({ type: z.literal("json_schema"), value: schema }),
    z.strictObject({ type: z.literal("lark"), value: grammarText }),
    z.strictObject({ type: z.literal("llguidance"), value: grammarText }),
    z.strictObject({ type: z.literal("gbnf"), value: grammarText }),
  ],
  { error: expectedVariant("a grammar", "type", grammarTypes) },
);

export const grammarField = z
  .union([grammarText.transform(textGrammar), typedGrammar], { error: expected("a grammar") })
  .nullish()
  .meta({ description: "Grammar of the whole output; excludes response_format. A string is a GBNF or Lark grammar." });

/**
 * Converts a `grammar` that was sent as text, which llama.cpp and vLLM also accept. Determines whether it is GBNF or Lark: only
 * GBNF contains `::=` outside strings.
 */
function textGrammar(value: string): { type: "gbnf" | "lark"; value: string } {
  return { type: /^\s*[\w-]+\s*::=/m.test(value) ? "gbnf" : "lark", value };
}

const ALIAS = "Alias of grammar, as vLLM names it";
const LLAMA_ALIAS = "Alias of grammar, as llama.cpp names it";
const MAX_GUIDED_CHOICES = 1000;
const guidedChoice = z.array(grammarText).min(1).max(MAX_GUIDED_CHOICES);

/** Grammar fields of other servers' protocols, for the complete output. */
export const guidedFields = {
  guided_json: schema.nullish().meta({ description: `${ALIAS}: a JSON schema.` }),
  guided_regex: grammarText.nullish().meta({ description: `${ALIAS}: a regular expression.` }),
  guided_choice: guidedChoice.nullish().meta({ description: `${ALIAS}: the possible outputs.` }),
  guided_grammar: grammarText.nullish().meta({ description: `${ALIAS}: a Lark or GBNF grammar.` }),
  json_schema: schema.nullish().meta({ description: `${LLAMA_ALIAS}: a JSON schema.` }),
  structured_outputs: z
    .strictObject({
      json: schema.nullish(),
      regex: grammarText.nullish(),
      choice: guidedChoice.nullish(),
      grammar: grammarText.nullish(),
      json_object: z.boolean().nullish(),
    })
    .nullish()
    .meta({ description: `${ALIAS}: an object with one of json, regex, choice, grammar and json_object.` }),
} as const;

type GuidedFields = z.output<z.ZodObject<typeof guidedFields>>;
type SentGrammar = NonNullable<z.output<typeof grammarField>>;
type Guided = NonNullable<GuidedFields["structured_outputs"]>;

interface GrammarFields extends Partial<GuidedFields> {
  readonly grammar?: z.output<typeof grammarField>;
  readonly response_format?: z.output<typeof responseFormat>;
  readonly ignore_eos?: boolean | null | undefined;
}

/** Yields the grammars in a request, with the names of their fields. */
function* sentGrammars(fields: GrammarFields): Iterable<readonly [field: string, grammar: SentGrammar]> {
  const { grammar, guided_json: json, guided_regex: regex, guided_choice: choice, guided_grammar: lark } = fields;
  if (grammar !== null && grammar !== undefined) yield ["grammar", grammar];
  for (const [name, value] of guidedGrammars({ json, regex, choice, grammar: lark })) yield [`guided_${name}`, value];
  const { structured_outputs: outputs, json_schema } = fields;
  if (json_schema !== null && json_schema !== undefined)
    yield ["json_schema", { type: "json_schema", value: json_schema }];
  for (const [name, value] of guidedGrammars(outputs ?? {})) yield [`structured_outputs.${name}`, value];
}

function* guidedGrammars({ json, regex, choice, grammar, json_object }: Guided): Iterable<[string, SentGrammar]> {
  if (json !== null && json !== undefined) yield ["json", { type: "json_schema", value: json }];
  if (regex) yield ["regex", { type: "regex", value: regex }];
  if (choice) yield ["choice", { type: "regex", value: choice.map(escaped).join("|") }];
  if (grammar) yield ["grammar", textGrammar(grammar)];
  if (json_object) yield ["json_object", { type: "json_schema", value: { type: "object" } }];
}

/** Returns a regular expression that matches only the given text. */
function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** Returns the grammar in a request, from any of the grammar fields; null if there is none. */
export function sentGrammar(fields: GrammarFields): SentGrammar | null {
  for (const [, grammar] of sentGrammars(fields)) return grammar;
  return null;
}

/** Returns the grammar that the output must match; null for free text. */
export function outputGrammar(fields: GrammarFields): OutputGrammar | null {
  const { response_format: format } = fields;
  for (const [field, grammar] of sentGrammars(fields)) {
    switch (grammar.type) {
      case "regex":
        return { kind: "regex", pattern: grammar.value };
      case "json_schema":
        return { kind: "json_schema", schema: schemaOf(grammar.value), field };
      default:
        return { kind: grammar.type, grammar: grammar.value };
    }
  }
  if (format === null || format === undefined || format.type === "text") return null;
  const schema = format.type === "json_schema" ? format.json_schema.schema : (format.schema ?? null);
  if (schema === null) return { kind: "json" };
  return { kind: "json_schema", schema: schemaOf(schema), field: "response_format" };
}

function isTooLarge(schema: unknown): boolean {
  return typeof schema === "object" && schema !== null && !isBounded(schema, ofWholeSchemas);
}

/** Parses a schema sent as text. Returns text that is not JSON unchanged; the grammar compiler then rejects it. */
function schemaOf(value: unknown): unknown {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/** Yields the conflicts between a grammar and other fields: a second grammar, or ignore_eos. */
export function* grammarConflicts(fields: GrammarFields): Iterable<Conflict> {
  const demanded = outputGrammar(fields);
  if (demanded === null) return;
  if (demanded.kind === "json_schema" && isTooLarge(demanded.schema)) {
    yield [demanded.field, tooLarge("a schema", ofWholeSchemas)];
  }

  const format = fields.response_format?.type ?? "text";
  const [first, second] = [...sentGrammars(fields)].map(([field]) => field);
  if (first !== undefined && format !== "text") {
    yield [first, "cannot be combined with response_format; send one of them"];
  }
  if (second !== undefined) yield [second, `cannot be combined with ${first}; send one of them`];
  if (fields.ignore_eos === true) {
    yield ["ignore_eos", "cannot be combined with a grammar or response_format: the output ends where they end"];
  }
}
