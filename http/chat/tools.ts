// Tools of a chat request, in the nested shape of this protocol, and their translation to ToolUse. Tools that the server does not
// run are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../engines/generation.ts";
import { expectedVariant } from "../issues.ts";
import type { Conflict } from "../shared/fields/conflicts.ts";
import {
  choiceFields,
  codeInterpreterTool,
  declaration,
  hostedTypes,
  MAX_TOOLS,
  namedFunction,
  nameOf,
  refusedChoice,
  refusedTools,
  type ServerTool,
  serverChoice,
  serverToolNames,
  shellTool,
  toolName,
  toolSpec,
} from "../shared/fields/tools/tool-fields.ts";
import { anyTool, type ToolChoice, toolConflicts, toolUse } from "../shared/fields/tools/tool-use.ts";

const name = toolName(64);
const refusedTypes = [...hostedTypes, "namespace"] as const;

const functionTool = z.strictObject({
  type: z.literal("function"),
  function: z.strictObject({ name, ...declaration }),
});

const toolTypes = ["function", "code_interpreter", "shell"];

const tool = z.discriminatedUnion("type", [functionTool, codeInterpreterTool, shellTool, refusedTools(refusedTypes)], {
  error: expectedVariant("a tool", "type", toolTypes),
});

const named = namedFunction(name, '{"type": "function", "function": {"name": …}}');

const namedTool = z.discriminatedUnion("type", [named, serverChoice, refusedChoice], {
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

const choice = z.discriminatedUnion("type", [named, serverChoice, allowedTools, refusedChoice], {
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

/** Returns the tools of the request and the server's tools `added`; null if no tool may be called. */
export function requestedTools(fields: ToolFields, added: readonly ToolSpec[]): ToolUse | null {
  return toolUse([...specsOf(fields), ...added], choiceOf(fields), fields.parallel_tool_calls ?? true);
}

export function requestedToolConflicts(fields: ToolFields, added: readonly ToolSpec[]): Iterable<Conflict> {
  return toolConflicts([...specsOf(fields), ...added], choiceOf(fields));
}

/** Returns the tools of the request that the server runs. */
export function serverToolsOf({ tools }: ToolFields): readonly ServerTool[] {
  return (tools ?? []).flatMap((tool) => (tool.type === "function" ? [] : [tool]));
}

/** Returns whether the request has functions that the client runs. */
export function hasFunctions({ tools }: ToolFields): boolean {
  return (tools ?? []).some(({ type }) => type === "function");
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) =>
    tool.type === "function" ? [toolSpec(tool.function.name, tool.function)] : [],
  );
}

function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type !== "allowed_tools") return { mode: "one", names: [nameOfChoice(choice)] };
  const { mode, tools } = choice.allowed_tools ?? choice;
  return { mode: mode ?? "auto", names: (tools ?? []).map(nameOfChoice) };
}

function nameOfChoice(choice: z.output<typeof namedTool>): string {
  return choice.type === "function" ? nameOf(choice) : serverToolNames[choice.type];
}
