// Tools of a response request and their translation to ToolUse. Their shape is flat; the nested shape of chat completions is
// also accepted. The model sees the name of a function in a namespace with the namespace as prefix. Tools that the server does
// not run are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, refused } from "../../shared/fields/fields.ts";
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
  toolDescription,
  toolName,
  toolSpec,
} from "../../shared/fields/tools/tool-fields.ts";
import { anyTool, type ToolChoice, toolConflicts, toolUse } from "../../shared/fields/tools/tool-use.ts";

/** Separator between namespace and function name. */
const SEPARATOR = "__";
const MAX_NAME_LENGTH = 64;

const name = toolName(MAX_NAME_LENGTH);
/** Function name as the model sees it, with an optional namespace prefix. */
const chosenName = toolName(2 * MAX_NAME_LENGTH + SEPARATOR.length);

const functionTool = z
  .strictObject({
    type: z.literal("function"),
    name: name.optional(),
    ...declaration,
    function: z
      .strictObject({ name, ...declaration })
      .optional()
      .meta({ description: "The declaration in the shape of chat completions." }),
    defer_loading: refused("deferred tools are not supported; send all tools", (value) => value === false),
    allowed_callers: ignored(z.array(z.string()), "only the model calls tools"),
    output_schema: ignored(z.unknown(), "results are not validated"),
  })
  .refine((tool) => (tool.name === undefined) !== (tool.function === undefined), {
    error: 'expected one name, as {"type": "function", "name": …, "parameters": …}',
  });

const hostedTool = refusedTools(hostedTypes);

const namespaceTool = z.strictObject({
  type: z.literal("namespace"),
  name,
  description: ignored(toolDescription, "templates have no field for it; functions have their own descriptions"),
  tools: z
    .array(
      z.discriminatedUnion("type", [functionTool, hostedTool], {
        error: expectedVariant("a tool of a namespace", "type", ["function"]),
      }),
    )
    .max(MAX_TOOLS)
    .meta({
      description: `Functions of the namespace. The model sees namespace${SEPARATOR}function; calls report both names separately.`,
    }),
});

const toolTypes = ["function", "code_interpreter", "shell"];

const tool = z.discriminatedUnion("type", [functionTool, namespaceTool, codeInterpreterTool, shellTool, hostedTool], {
  error: expectedVariant("a tool", "type", [...toolTypes, "namespace", ...hostedTypes]),
});

const named = namedFunction(chosenName, '{"type": "function", "name": …}');

const namedTool = z.discriminatedUnion("type", [named, serverChoice, refusedChoice], {
  error: expectedVariant("the name of a tool", "type", toolTypes),
});

const allowedTools = z.strictObject({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: z.array(namedTool).max(MAX_TOOLS),
});

const choice = z.discriminatedUnion("type", [named, serverChoice, allowedTools, refusedChoice], {
  error: expectedVariant("a choice of tools", "type", [...toolTypes, "allowed_tools"]),
});

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .refine((tools) => functionCount(tools) <= MAX_TOOLS, {
      error: `expected at most ${MAX_TOOLS} functions, including those of namespaces; got more`,
      abort: true,
    })
    .nullish()
    .meta({ description: "Functions that the client runs, and tools that the server runs." }),
  ...choiceFields(choice),
} as const;

export type ToolFields = z.output<z.ZodObject<typeof toolFields>>;
type Tool = z.output<typeof tool>;
type FunctionTool = z.output<typeof functionTool>;
type NamedTool = z.output<typeof namedTool>;

/** Function in a namespace, as clients see it. */
export interface FunctionName {
  readonly name: string;
  readonly namespace: string;
}

/** Returns the name of a function as the model sees it. */
export function modelName({ name, namespace }: { readonly name: string; readonly namespace: string | null }): string {
  return namespace === null || namespace === "" ? name : `${namespace}${SEPARATOR}${name}`;
}

/** Returns the functions of all namespaces, by the name that the model sees. */
export function namespacedNames({ tools }: ToolFields): ReadonlyMap<string, FunctionName> {
  const names = new Map<string, FunctionName>();
  for (const tool of tools ?? []) {
    if (tool.type !== "namespace") continue;
    for (const inner of tool.tools) {
      const named = { name: nameOf(inner), namespace: tool.name };
      names.set(modelName(named), named);
    }
  }
  return names;
}

/** Returns the tools of the request and the server's tools `added`; null if no tool may be called. */
export function requestedTools(fields: ToolFields, added: readonly ToolSpec[]): ToolUse | null {
  return toolUse([...specsOf(fields), ...added], choiceOf(fields), fields.parallel_tool_calls ?? true);
}

export function requestedToolConflicts(fields: ToolFields, added: readonly ToolSpec[]): Iterable<Conflict> {
  return toolConflicts([...specsOf(fields), ...added], choiceOf(fields));
}

/** Returns whether the request has functions that the client runs. */
export function hasFunctions({ tools }: Pick<ToolFields, "tools">): boolean {
  return (tools ?? []).some((tool) => !isServerTool(tool));
}

/** Returns the tools of the request that the server runs. */
export function serverToolsOf({ tools }: Pick<ToolFields, "tools">): readonly ServerTool[] {
  return (tools ?? []).flatMap((tool) => (isServerTool(tool) ? [tool] : []));
}

function isServerTool(tool: Tool): tool is ServerTool {
  return tool.type === "code_interpreter" || tool.type === "shell";
}

/** Builds the field `tools` of a response. */
export function wireTools({ tools }: ToolFields): readonly object[] {
  return (tools ?? []).map((tool) => {
    if (isServerTool(tool)) return tool;
    if (tool.type !== "namespace") return wireFunction(tool);
    const { type, name, description } = tool;
    return { type, name, description: description ?? null, tools: tool.tools.map(wireFunction) };
  });
}

function wireFunction(tool: FunctionTool): object {
  return { type: "function", ...specOf(tool, null) };
}

/** Builds the field `tool_choice` of a response. */
export function wireToolChoice({ tool_choice: choice }: ToolFields): unknown {
  if (choice === null || choice === undefined) return "auto";
  if (typeof choice === "string") return choice;
  if (choice.type !== "allowed_tools") return wireName(choice);
  return { ...choice, tools: choice.tools.map(wireName) };
}

function wireName(tool: NamedTool): object {
  if (tool.type !== "function") return tool;
  return { type: "function", name: nameOf(tool) };
}

function functionCount(tools: readonly Tool[]): number {
  return tools.reduce((count, tool) => count + (tool.type === "namespace" ? tool.tools.length : 1), 0);
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) => {
    if (isServerTool(tool)) return [];
    return tool.type === "namespace" ? tool.tools.map((inner) => specOf(inner, tool.name)) : [specOf(tool, null)];
  });
}

function specOf(tool: FunctionTool, namespace: string | null): ToolSpec {
  return toolSpec(modelName({ name: nameOf(tool), namespace }), tool.function ?? tool);
}

function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type !== "allowed_tools") return { mode: "one", names: [nameOfChoice(choice)] };
  return { mode: choice.mode, names: choice.tools.map(nameOfChoice) };
}

function nameOfChoice(choice: NamedTool): string {
  return choice.type === "function" ? nameOf(choice) : serverToolNames[choice.type];
}
