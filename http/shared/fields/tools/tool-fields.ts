// Tool schemas that the protocols share: names and limits, the declaration of a function, and the tool choice. Also lists the
// types of hosted tools, which are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec } from "../../../../engines/generation.ts";
import { expected } from "../../../issues.ts";
import { isBounded, tooLarge } from "../bounded.ts";
import { notYet, refusedVariants } from "../fields.ts";

export const MAX_TOOLS = 256;
const MAX_DESCRIPTION_LENGTH = 65_536;

export function toolName(maxLength: number) {
  return z.string().regex(new RegExp(`^[a-zA-Z0-9_-]{1,${maxLength}}$`), {
    error: expected(`a name of 1 to ${maxLength} letters, digits, underscores and hyphens`),
  });
}

export const toolDescription = z.string().max(MAX_DESCRIPTION_LENGTH);

/** Fields of a function in OpenAI's protocols, except its name. */
export const declaration = {
  description: toolDescription.nullish(),
  parameters: z
    .record(z.string(), z.unknown())
    .refine(isBounded, { error: tooLarge("a schema") })
    .nullish()
    .meta({ description: "JSON schema of the arguments, which are an object; any object by default." }),
  strict: z
    .boolean()
    .nullish()
    .meta({ description: "Enforce the schema on the arguments of every call.", default: false }),
} as const;

type Declaration = z.output<z.ZodObject<typeof declaration>>;

export function toolSpec(name: string, { description, parameters, strict }: Declaration): ToolSpec {
  return { name, description: description ?? null, parameters: parameters ?? null, strict: strict ?? false };
}

/** Tool types of OpenAI that are neither functions nor namespaces. */
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
    (type) => `${notYet(`a tool of type "${type}"`)}; declare tools that the client runs as type "function"`,
  );
}

export const refusedChoice = refusedVariants(hostedTypes, (type) => notYet(`a choice of type "${type}"`));

/**
 * Schema of a tool choice that names a function, nested (chat completions) or flat (responses). `example` is the form that the
 * error message shows.
 */
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

/** Returns the chosen function name. The schemas guarantee that one of the two names is set. */
export function nameOf(named: Named): string {
  return named.function?.name ?? named.name ?? "";
}

const modes = z.enum(["none", "auto", "required"]);

/**
 * Creates the fields of the tool choice. `choice` is the schema of the object form. It is the first member of the union, so
 * that the error for an invalid object comes from this schema.
 */
export function choiceFields<Choice extends z.ZodType>(choice: Choice) {
  return {
    tool_choice: z
      .union([choice, modes], { error: expected('"none", "auto", "required" or a choice of tools') })
      .nullish()
      .meta({
        description:
          "Which tools may or must be called; a grammar enforces a required call, and exactly one call of a named function.",
        default: "auto",
      }),
    parallel_tool_calls: z
      .boolean()
      .nullish()
      .meta({ description: "Allow several calls in one response.", default: true }),
  };
}
