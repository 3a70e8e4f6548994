// Tools of a chat request, in the nested shape of this protocol, and their translation to ToolUse. Tools that the server does not
// run are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../engines/generation.ts";
import { expectedVariant } from "../issues.ts";
import type { Conflict } from "../shared/fields/conflicts.ts";
import { type McpTool, mcpChoice, mcpTool } from "../shared/fields/tools/mcp-tool.ts";
import {
  choiceFields,
  codeInterpreterTool,
  declaration,
  hostedTypes,
  MAX_TOOLS,
  namedFunction,
  nameOf,
  refusedChoices,
  refusedTools,
  type ServerTool,
  serverChoice,
  serverToolNames,
  shellTool,
  toolName,
  toolSpec,
  webSearchTypes,
} from "../shared/fields/tools/tool-fields.ts";
import { anyTool, checkChoice, type ToolChoice, toolConflicts, toolUse } from "../shared/fields/tools/tool-use.ts";

const name = toolName(64);
const refusedTypes = [...webSearchTypes, ...hostedTypes, "namespace"] as const;

const functionTool = z.strictObject({
  type: z.literal("function"),
  function: z.strictObject({ name, ...declaration }),
});

const toolTypes = ["function", "code_interpreter", "shell", "mcp"];

const tool = z.discriminatedUnion(
  "type",
  [functionTool, codeInterpreterTool, shellTool, mcpTool, refusedTools(refusedTypes)],
  {
    error: expectedVariant("a tool", "type", toolTypes),
  },
);

const refusedChoice = refusedChoices([...webSearchTypes, ...hostedTypes]);
const named = namedFunction(name, '{"type": "function", "function": {"name": …}}');

const namedTool = z.discriminatedUnion("type", [named, serverChoice, mcpChoice, refusedChoice], {
  error: expectedVariant("the name of a tool", "type", toolTypes),
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

const choice = z.discriminatedUnion("type", [named, serverChoice, mcpChoice, allowedTools, refusedChoice], {
  error: expectedVariant("a choice of tools", "type", [...toolTypes, "allowed_tools"]),
});

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .nullish()
    .meta({ description: "Functions that the client runs, and tools that the server runs." }),
  ...choiceFields(choice),
} as const;

type ToolFields = z.output<z.ZodObject<typeof toolFields>>;

/**
 * Returns the request's tools together with the server's tools `added`; null if no tool may be called. Throws invalid_value if
 * the tool choice does not fit these tools.
 */
export function requestedTools(fields: ToolFields, added: readonly ToolSpec[]): ToolUse | null {
  checkChoice([...specsOf(fields), ...added], choiceOf(fields));
  return namedTools(fields, added);
}

/** Returns the same as requestedTools, but does not check the tool choice, because the list of tools may be incomplete. */
export function namedTools(fields: ToolFields, added: readonly ToolSpec[]): ToolUse | null {
  return toolUse([...specsOf(fields), ...added], choiceOf(fields), fields.parallel_tool_calls ?? true);
}

export function requestedToolConflicts(fields: ToolFields, added: readonly ToolSpec[]): Iterable<Conflict> {
  return toolConflicts([...specsOf(fields), ...added]);
}

/** Returns the built-in tools that the request names. */
export function serverToolsOf({ tools }: ToolFields): readonly ServerTool[] {
  return (tools ?? []).flatMap((tool) => (tool.type === "code_interpreter" || tool.type === "shell" ? [tool] : []));
}

/** Returns the MCP servers that the request names. */
export function mcpToolsOf({ tools }: ToolFields): readonly McpTool[] {
  return (tools ?? []).flatMap((tool) => (tool.type === "mcp" ? [tool] : []));
}

/** Returns the names of the functions that the client runs. */
export function functionNames(fields: ToolFields): readonly string[] {
  return specsOf(fields).map(({ name }) => name);
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) =>
    tool.type === "function" ? [toolSpec(tool.function.name, tool.function)] : [],
  );
}

export function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type !== "allowed_tools") return { mode: "one", names: [nameOfChoice(choice)] };
  const { mode, tools } = choice.allowed_tools ?? choice;
  return { mode: mode ?? "auto", names: (tools ?? []).map(nameOfChoice) };
}

function nameOfChoice(choice: z.output<typeof namedTool>): string {
  if (choice.type === "function") return nameOf(choice);
  return choice.type === "mcp" ? choice.name : serverToolNames[choice.type];
}
