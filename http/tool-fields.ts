// Owns OpenAI's shape of the tools a model may call, as request fields, and what they come to. Which kinds of tools there are
// is known here by name; those that this server would have to run itself are refused.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../engines/chat.ts";
import { isBounded, tooLarge } from "./bounded.ts";
import { fieldIssue, notYet, refusedVariants } from "./fields.ts";
import { expected, expectedVariant } from "./issues.ts";
import { anyTool, type ToolChoice, toolConflicts, toolUse } from "./tool-use.ts";

const MAX_TOOLS = 256;
const MAX_DESCRIPTION_LENGTH = 65_536;

const hostedTypes = [
  "custom",
  "web_search",
  "web_search_preview",
  "file_search",
  "code_interpreter",
  "shell",
  "local_shell",
  "namespace",
  "mcp",
  "image_generation",
  "computer_use_preview",
] as const;

const hostedTool = refusedVariants(
  hostedTypes,
  (type) => `${notYet(`a tool of type "${type}"`)}; declare what the client runs itself as type "function"`,
);

const functionName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, {
  error: expected("a name of 1 to 64 letters, digits, underscores and hyphens"),
});

const parametersSchema = z
  .record(z.string(), z.unknown())
  .refine(isBounded, { error: tooLarge("a schema") })
  .nullish()
  .meta({ description: "JSON schema of the arguments, which are an object; left out: any object" });

const functionTool = z.strictObject({
  type: z.literal("function"),
  function: z.strictObject({
    name: functionName,
    description: z.string().max(MAX_DESCRIPTION_LENGTH).nullish(),
    parameters: parametersSchema,
    strict: z.boolean().nullish().meta({ description: "Every call's arguments match the schema; false" }),
  }),
});

const tool = z.discriminatedUnion("type", [functionTool, hostedTool], {
  error: expectedVariant("a tool", "type", ["function", ...hostedTypes]),
});

// Both ways to name a function: OpenAI's, and the flat one.
const namedFunction = z
  .strictObject({
    type: z.literal("function"),
    function: z.strictObject({ name: functionName }).optional(),
    name: functionName.optional(),
  })
  .refine((choice) => (choice.function === undefined) !== (choice.name === undefined), {
    error: 'expected one name, as {"type": "function", "function": {"name": …}}',
  });

const refusedChoice = refusedVariants(hostedTypes, (type) => notYet(`a choice of type "${type}"`));

const namedTool = z.discriminatedUnion("type", [namedFunction, refusedChoice], {
  error: expectedVariant("the name of a tool", "type", ["function"]),
});

const allowed = { mode: z.enum(["auto", "required"]), tools: z.array(namedTool).max(MAX_TOOLS) };

const allowedTools = z
  .strictObject({
    type: z.literal("allowed_tools"),
    allowed_tools: z.strictObject(allowed).optional(),
    mode: allowed.mode.optional(),
    tools: allowed.tools.optional(),
  })
  .refine(
    ({ allowed_tools, mode, tools }) =>
      allowed_tools === undefined ? mode !== undefined && tools !== undefined : (mode ?? tools) === undefined,
    { error: 'expected a mode and tools, as {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}' },
  );

const modes = ["none", "auto", "required"] as const;
const choiceObject = z.discriminatedUnion("type", [namedFunction, allowedTools, refusedChoice], {
  error: expectedVariant("a choice of tools", "type", ["function", "allowed_tools"]),
});

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .nullish()
    .meta({ description: "Functions the model may call; the client runs them" }),
  tool_choice: z
    .union([choiceObject, z.enum(modes)], { error: expected('"none", "auto", "required" or a choice of tools') })
    .nullish()
    .meta({ description: "Left out: auto. What is required or named is called: a grammar sees to it" }),
  parallel_tool_calls: z.boolean().nullish().meta({ description: "An answer may hold several calls; true" }),
} as const;

type ToolFields = z.output<z.ZodObject<typeof toolFields>>;
type Choice = NonNullable<ToolFields["tool_choice"]>;
type NamedTool = z.output<typeof namedTool>;

/** null where nothing may be called. */
export function requestedTools(fields: ToolFields): ToolUse | null {
  return toolUse(specsOf(fields), choiceOf(fields.tool_choice ?? "auto"), fields.parallel_tool_calls ?? true);
}

interface OtherFields {
  readonly grammar?: unknown;
  readonly ignore_eos?: boolean | null | undefined;
}

/** What contradicts itself in the tools, and with the rest of the request: each as a field and what is wrong with it. */
export function* toolFieldIssues(fields: ToolFields & OtherFields): Iterable<ReturnType<typeof fieldIssue>> {
  const choice = choiceOf(fields.tool_choice ?? "auto");
  for (const [field, message] of toolConflicts(specsOf(fields), choice)) yield fieldIssue(field, message);
  const use = requestedTools(fields);
  if (use === null) return;
  if (fields.grammar !== null && fields.grammar !== undefined) {
    yield fieldIssue(
      "grammar",
      'cannot be combined with tools, which are called in another form; send tool_choice "none"',
    );
  }
  if (use.required && fields.ignore_eos === true) {
    yield fieldIssue("ignore_eos", "cannot be combined with a required call: the answer ends where the call ends");
  }
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).map(({ function: { name, description, parameters, strict } }) => ({
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? false,
  }));
}

function choiceOf(choice: Choice): ToolChoice {
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type === "function") return { mode: "required", names: [nameOf(choice)] };
  const { mode, tools } = choice.allowed_tools ?? choice;
  return { mode: mode ?? "auto", names: (tools ?? []).map(nameOf) };
}

// The schema has seen to it that there is one.
function nameOf(tool: NamedTool): string {
  return tool.function?.name ?? tool.name ?? "";
}
