// Tools of a response request, and their translation to ToolUse. Tools have a flat format; the nested format of chat
// completions is also accepted. A function in a namespace has the namespace as a prefix in the name that the model sees. Tools
// that the server does not run are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, refused } from "../../shared/fields/fields.ts";
import { type McpTool, mcpChoice, mcpTool } from "../../shared/fields/tools/mcp-tool.ts";
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
  toolDescription,
  toolName,
  toolSpec,
  webSearchTypes,
} from "../../shared/fields/tools/tool-fields.ts";
import { anyTool, checkChoice, type ToolChoice, toolConflicts, toolUse } from "../../shared/fields/tools/tool-use.ts";
import { type WebSearchTool, webSearchTool, webToolNames } from "../../shared/fields/tools/web-search.ts";

/** Separator between namespace and function name. */
const SEPARATOR = "__";
const MAX_NAME_LENGTH = 64;

const name = toolName(MAX_NAME_LENGTH);
/** Function name that the model sees, with an optional namespace prefix. */
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

const toolTypes = ["function", "code_interpreter", "shell", "web_search", "mcp"];

const tool = z.discriminatedUnion(
  "type",
  [functionTool, namespaceTool, codeInterpreterTool, shellTool, webSearchTool, mcpTool, hostedTool],
  { error: expectedVariant("a tool", "type", [...toolTypes, "namespace", ...hostedTypes]) },
);

const webChoice = z.strictObject({ type: z.enum(webSearchTypes) });

const refusedChoice = refusedChoices(hostedTypes);
const named = namedFunction(chosenName, '{"type": "function", "name": …}');

const namedTool = z.discriminatedUnion("type", [named, serverChoice, webChoice, mcpChoice, refusedChoice], {
  error: expectedVariant("the name of a tool", "type", toolTypes),
});

const allowedTools = z.strictObject({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: z.array(namedTool).max(MAX_TOOLS),
});

const choice = z.discriminatedUnion("type", [named, serverChoice, webChoice, mcpChoice, allowedTools, refusedChoice], {
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

/** Name of a function in a namespace, as clients see it. */
export interface FunctionName {
  readonly name: string;
  readonly namespace: string;
}

/** Returns the function name that the model sees. */
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

/** Returns the names of the functions that the client runs. These are the names that the model sees. */
export function functionNames(fields: Pick<ToolFields, "tools">): readonly string[] {
  return specsOf(fields).map(({ name }) => name);
}

/** Returns the built-in tools in the request that run in the server's sandbox. */
export function serverToolsOf({ tools }: Pick<ToolFields, "tools">): readonly ServerTool[] {
  return (tools ?? []).flatMap((tool) => (tool.type === "code_interpreter" || tool.type === "shell" ? [tool] : []));
}

/** Returns the web search tool of the request; null if there is none. */
export function webToolOf({ tools }: Pick<ToolFields, "tools">): WebSearchTool | null {
  return (tools ?? []).find(isWebTool) ?? null;
}

/** Returns the MCP servers that the request names. */
export function mcpToolsOf({ tools }: Pick<ToolFields, "tools">): readonly McpTool[] {
  return (tools ?? []).flatMap((tool) => (tool.type === "mcp" ? [tool] : []));
}

function isWebTool(tool: Tool): tool is WebSearchTool {
  return webSearchTypes.some((type) => type === tool.type);
}

function isWebChoice(choice: NamedTool): choice is z.output<typeof webChoice> {
  return webSearchTypes.some((type) => type === choice.type);
}

/** Returns whether the server runs the tool. */
function isServerTool(tool: Tool): tool is ServerTool | WebSearchTool | McpTool {
  return tool.type !== "function" && tool.type !== "namespace";
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

function specsOf({ tools }: Pick<ToolFields, "tools">): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) => {
    if (isServerTool(tool)) return [];
    return tool.type === "namespace" ? tool.tools.map((inner) => specOf(inner, tool.name)) : [specOf(tool, null)];
  });
}

function specOf(tool: FunctionTool, namespace: string | null): ToolSpec {
  return toolSpec(modelName({ name: nameOf(tool), namespace }), tool.function ?? tool);
}

export function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type !== "allowed_tools") return { mode: "one", names: [nameOfChoice(choice)] };
  return { mode: choice.mode, names: choice.tools.map(nameOfChoice) };
}

function nameOfChoice(choice: NamedTool): string {
  if (choice.type === "function") return nameOf(choice);
  if (choice.type === "mcp") return choice.name;
  return isWebChoice(choice) ? webToolNames.search : serverToolNames[choice.type];
}
