// Owns what the protocols' descriptions of tools have in common, as schemas: names and limits, a function's declaration, the
// kinds of tools that this server would have to run itself, which are refused by name, and the choice among tools.
import { z } from "zod";
import type { ToolSpec } from "../../../engines/generation.ts";
import { expected } from "../../issues.ts";
import { isBounded, tooLarge } from "./bounded.ts";
import { notYet, refusedVariants } from "./fields.ts";

export const MAX_TOOLS = 256;
const MAX_DESCRIPTION_LENGTH = 65_536;

export function toolName(maxLength: number) {
  return z.string().regex(new RegExp(`^[a-zA-Z0-9_-]{1,${maxLength}}$`), {
    error: expected(`a name of 1 to ${maxLength} letters, digits, underscores and hyphens`),
  });
}

export const toolDescription = z.string().max(MAX_DESCRIPTION_LENGTH);

/** What is said of a function beside its name, as OpenAI's protocols say it. */
export const declaration = {
  description: toolDescription.nullish(),
  parameters: z
    .record(z.string(), z.unknown())
    .refine(isBounded, { error: tooLarge("a schema") })
    .nullish()
    .meta({ description: "JSON schema of the arguments, which are an object; left out: any object" }),
  strict: z.boolean().nullish().meta({ description: "Every call's arguments match the schema; false" }),
} as const;

type Declaration = z.output<z.ZodObject<typeof declaration>>;

export function toolSpec(name: string, { description, parameters, strict }: Declaration): ToolSpec {
  return { name, description: description ?? null, parameters: parameters ?? null, strict: strict ?? false };
}

/** OpenAI's kinds of tools besides functions, and namespaces of them. */
export const hostedTypes = [
  "web_search",
  "web_search_2025_08_26",
  "web_search_preview",
  "web_search_preview_2025_03_11",
  "file_search",
  "code_interpreter",
  "shell",
  "local_shell",
  "apply_patch",
  "custom",
  "tool_search",
  "mcp",
  "image_generation",
  "computer",
  "computer_use",
  "computer_use_preview",
  "programmatic_tool_calling",
] as const;

export function refusedTools<const Types extends readonly [string, ...string[]]>(types: Types) {
  return refusedVariants(
    types,
    (type) => `${notYet(`a tool of type "${type}"`)}; declare what the client runs itself as type "function"`,
  );
}

export const refusedChoice = refusedVariants(hostedTypes, (type) => notYet(`a choice of type "${type}"`));

/** Both ways to name a function: nested, as chat completions do, and flat, as responses do; `example` is the usual one. */
export function namedFunction(name: z.ZodString, example: string) {
  return z
    .strictObject({
      type: z.literal("function"),
      name: name.optional(),
      function: z.strictObject({ name }).optional(),
    })
    .refine((choice) => (choice.name === undefined) !== (choice.function === undefined), {
      error: `expected one name, as ${example}`,
    });
}

interface Named {
  readonly name?: string | undefined;
  readonly function?: { readonly name: string } | undefined;
}

// The schemas have seen to it that there is one.
export function nameOf(named: Named): string {
  return named.function?.name ?? named.name ?? "";
}

const modes = z.enum(["none", "auto", "required"]);

/** `choice` is the choice that is said in an object. It comes first: what it says of an object at fault is what counts. */
export function choiceFields<Choice extends z.ZodType>(choice: Choice) {
  return {
    tool_choice: z
      .union([choice, modes], { error: expected('"none", "auto", "required" or a choice of tools') })
      .nullish()
      .meta({ description: "Left out: auto. What is required or named is called: a grammar sees to it" }),
    parallel_tool_calls: z.boolean().nullish().meta({ description: "An answer may hold several calls; true" }),
  };
}
