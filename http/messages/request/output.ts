// Output format of a messages request: two fields of the messages API, and the fields that all protocols of this server share.
// A request may set only one of them.
import { z } from "zod";
import type { OutputGrammar } from "../../../engines/generation.ts";
import { isBounded, tooLarge } from "../../shared/fields/bounded.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { commonFields, notBuiltYet } from "../../shared/fields/fields.ts";
import { grammarConflicts, outputGrammar, responseFormat } from "../../shared/fields/grammar-fields.ts";
import { vendorEffortField } from "./thinking.ts";

const jsonFormat = z.strictObject({
  type: z.literal("json_schema"),
  schema: z.record(z.string(), z.unknown()).refine(isBounded, { error: tooLarge("a schema") }),
});

export const outputFields = {
  output_config: z
    .strictObject({
      effort: vendorEffortField,
      format: jsonFormat.nullish().meta({ description: "Required output format, enforced by a grammar." }),
      task_budget: notBuiltYet("a task budget"),
    })
    .nullish(),
  output_format: jsonFormat.nullish().meta({ description: "Older name of output_config.format." }),
  response_format: responseFormat,
  grammar: commonFields.grammar,
} as const;

type OutputFields = z.output<z.ZodObject<typeof outputFields>> & {
  readonly ignore_eos?: boolean | null | undefined;
};

/** Returns the grammar that the output must match; null for free text. */
export function demandedGrammar(fields: OutputFields): OutputGrammar | null {
  return vendorGrammars(fields)[0] ?? outputGrammar(fields);
}

export function* outputConflicts(fields: OutputFields): Iterable<Conflict> {
  yield* grammarConflicts(fields);
  const vendors = vendorGrammars(fields);
  if (vendors.length === 0) return;
  if (vendors.length > 1 || outputGrammar(fields) !== null) {
    yield ["output_config", "a format cannot be combined with another one, or with a grammar; send one of them"];
  }
  if (fields.ignore_eos === true) {
    yield ["ignore_eos", "cannot be combined with an output format: the output ends with the format"];
  }
}

function vendorGrammars({ output_config, output_format }: OutputFields): readonly OutputGrammar[] {
  const places = [
    ["output_config.format", output_config?.format],
    ["output_format", output_format],
  ] as const;
  return places.flatMap(([field, format]) => (format ? [{ kind: "json_schema", schema: format.schema, field }] : []));
}
