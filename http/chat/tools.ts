// Tools of a chat request, in the nested shape of this protocol, and their translation to ToolUse. Hosted tools are rejected
// with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../engines/generation.ts";
import { expectedVariant } from "../issues.ts";
import type { Conflict } from "../shared/fields/conflicts.ts";
import {
  choiceFields,
  declaration,
  hostedTypes,
  MAX_TOOLS,
  namedFunction,
  nameOf,
  refusedChoice,
  refusedTools,
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

const tool = z.discriminatedUnion("type", [functionTool, refusedTools(refusedTypes)], {
  error: expectedVariant("a tool", "type", ["function"]),
});

const named = namedFunction(name, '{"type": "function", "function": {"name": …}}');

const namedTool = z.discriminatedUnion("type", [named, refusedChoice], {
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

const choice = z.discriminatedUnion("type", [named, allowedTools, refusedChoice], {
  error: expectedVariant("a choice of tools", "type", ["function", "allowed_tools"]),
});

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .nullish()
    .meta({ description: "Functions that the model may call and the client runs." }),
  ...choiceFields(choice),
} as const;

type ToolFields = z.output<z.ZodObject<typeof toolFields>>;

/** Returns the tools of the request; null if no tool may be called. */
export function requestedTools(fields: ToolFields): ToolUse | null {
  return toolUse(specsOf(fields), choiceOf(fields), fields.parallel_tool_calls ?? true);
}

export function requestedToolConflicts(fields: ToolFields): Iterable<Conflict> {
  return toolConflicts(specsOf(fields), choiceOf(fields));
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).map(({ function: declared }) => toolSpec(declared.name, declared));
}

function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type === "function") return { mode: "one", names: [nameOf(choice)] };
  const { mode, tools } = choice.allowed_tools ?? choice;
  return { mode: mode ?? "auto", names: (tools ?? []).map(nameOf) };
}
