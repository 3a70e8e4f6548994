// Tools and tool choice of a messages request: the schemas and their translation to ToolUse. Tools that run on the API
// vendor's servers are rejected with an error that names them.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import { isBounded, tooLarge } from "../../shared/fields/bounded.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, notYet, refused, refusedVariants } from "../../shared/fields/fields.ts";
import {
  MAX_TOOLS,
  toolName as nameOfLength,
  serverToolNames,
  toolDescription,
  toolSpec,
} from "../../shared/fields/tools/tool-fields.ts";
import { anyTool, checkChoice, type ToolChoice, toolConflicts, toolUse } from "../../shared/fields/tools/tool-use.ts";
import { webToolNames } from "../../shared/fields/tools/web-search.ts";
import {
  fetchTool,
  isDirectCaller,
  mcpToolset,
  type SentServerTools,
  searchTool,
  serverToolFields,
} from "./server-tools.ts";

/** Tool name. The maximum length is the largest that any of the protocols allows. */
export const toolName = nameOfLength(128);

const serverTools = [
  "bash_20241022",
  "bash_20250124",
  "text_editor_20241022",
  "text_editor_20250124",
  "text_editor_20250429",
  "text_editor_20250728",
  "computer_20241022",
  "computer_20250124",
  "computer_20251124",
  "computer_toolset_20260801",
  "browser_toolset_20260801",
  "memory_20250818",
  "tool_search_tool_bm25",
  "tool_search_tool_bm25_20251119",
  "tool_search_tool_regex",
  "tool_search_tool_regex_20251119",
  "advisor_20260301",
] as const;

/** Versions of the code execution tool. The first version runs only Python; later versions also offer a shell. */
const codeTools = [
  "code_execution_20250522",
  "code_execution_20250825",
  "code_execution_20260120",
  "code_execution_20260521",
] as const;

const codeTool = z.strictObject({
  type: z.enum(codeTools),
  name: z.literal("code_execution"),
  ...serverToolFields,
});

const serverTool = refusedVariants(
  serverTools,
  (type) => `${notYet(`a tool of type "${type}"`)}; declare tools that the client runs with a name and an input_schema`,
);

const clientTool = z.strictObject({
  type: z.literal("custom").nullish(),
  name: toolName,
  description: toolDescription.nullish(),
  input_schema: z
    .looseObject({ type: z.literal("object") })
    .refine(isBounded, { error: tooLarge("a schema") })
    .meta({ description: "JSON schema of the input." }),
  strict: z.boolean().nullish().meta({ description: "Enforce the schema on the input of every call.", default: false }),
  cache_control: ignored(z.looseObject({ type: z.string() }), "the prefix cache is automatic"),
  eager_input_streaming: ignored(z.boolean(), "the input is always streamed"),
  input_examples: ignored(z.array(z.record(z.string(), z.unknown())), "templates have no field for examples"),
  defer_loading: z.boolean().nullish().meta({
    description:
      "Declare the tool to the model only after a `tool_reference` in a tool result, or a tool choice, names it.",
    default: false,
  }),
  allowed_callers: refused("only the model calls tools here", isDirectCaller),
});

const tool = z.discriminatedUnion("type", [clientTool, codeTool, searchTool, fetchTool, mcpToolset, serverTool], {
  error: expectedVariant("a tool", "type", ["custom", ...codeTools, "web_search_…", "web_fetch_…", "mcp_toolset"]),
});

const disableParallel = {
  disable_parallel_tool_use: z
    .boolean()
    .nullish()
    .meta({ description: "Allow at most one call in a response.", default: false }),
};

const choice = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("auto"), ...disableParallel }),
    z.strictObject({ type: z.literal("any"), ...disableParallel }),
    z.strictObject({ type: z.literal("tool"), name: toolName, ...disableParallel }),
    z.strictObject({ type: z.literal("none") }),
  ],
  { error: expectedVariant("a choice of tools", "type", ["auto", "any", "tool", "none"]) },
);

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .nullish()
    .meta({ description: "Tools that the client runs, and tools that the server runs." }),
  tool_choice: choice.nullish().meta({
    description:
      "Which tools may or must be called; a grammar enforces a required call, and exactly one call of a named tool.",
    default: { type: "auto" },
  }),
} as const;

type ToolFields = z.output<z.ZodObject<typeof toolFields>>;

/**
 * Returns the request's tools together with the server's tools `added`; null if no tool may be called. A tool with
 * `defer_loading` is included only if `loaded` or the tool choice contains its name, or if `loaded` is null. Throws
 * invalid_value if the tool choice does not fit these tools.
 */
export function requestedTools(
  fields: ToolFields,
  added: readonly ToolSpec[],
  loaded: ReadonlySet<string> | null,
): ToolUse | null {
  checkChoice([...specsOf(fields.tools), ...added], choiceOf(fields));
  return namedTools(fields, added, loaded);
}

/** Returns the same as requestedTools, but does not check the tool choice, because the list of tools may be incomplete. */
export function namedTools(
  fields: ToolFields,
  added: readonly ToolSpec[],
  loaded: ReadonlySet<string> | null,
): ToolUse | null {
  const { tools, tool_choice: wanted } = fields;
  const isSingle =
    wanted !== null && wanted !== undefined && wanted.type !== "none" && wanted.disable_parallel_tool_use;
  const chosen = choiceOf(fields);
  const isDeclared = (tool: Tool): boolean =>
    !isDeferred(tool) || loaded === null || loaded.has(tool.name) || (chosen.names?.includes(tool.name) ?? false);
  const declared = tools?.filter(isDeclared);
  return toolUse([...specsOf(declared), ...added], chosen, isSingle !== true);
}

export function* requestedToolConflicts(fields: ToolFields, added: readonly ToolSpec[]): Iterable<Conflict> {
  const { tools } = fields;
  if (tools?.length && tools.every(isDeferred)) {
    yield ["tools", "expected at least one tool without defer_loading: the model could load none of the others"];
  }
  yield* toolConflicts([...specsOf(tools), ...added]);
}

/** Returns whether the code execution tools of the request include Python (`code`) and a shell. */
export function codeExecutionOf({ tools }: Pick<ToolFields, "tools">): {
  readonly code: boolean;
  readonly shell: boolean;
} {
  const types = (tools ?? []).flatMap((tool) => (isCodeTool(tool) ? [tool.type] : []));
  return { code: types.length > 0, shell: types.some((type) => type !== "code_execution_20250522") };
}

/** Returns the names of the tools that the client runs. */
export function clientToolNames({ tools }: Pick<ToolFields, "tools">): readonly string[] {
  return specsOf(tools).map(({ name }) => name);
}

/** Returns the web tools and MCP toolsets of the request. */
export function serverToolsOf({ tools }: Pick<ToolFields, "tools">): SentServerTools {
  const sent = tools ?? [];
  return { search: sent.find(isSearch), fetch: sent.find(isFetch), toolsets: sent.filter(isToolset) };
}

type Tool = z.output<typeof tool>;
type CodeTool = z.output<typeof codeTool>;

function isCodeTool(tool: Tool): tool is CodeTool {
  return codeTools.some((type) => type === tool.type);
}

function isSearch(tool: Tool): tool is z.output<typeof searchTool> {
  return searchTool.shape.type.options.some((type) => type === tool.type);
}

function isFetch(tool: Tool): tool is z.output<typeof fetchTool> {
  return fetchTool.shape.type.options.some((type) => type === tool.type);
}

function isToolset(tool: Tool): tool is z.output<typeof mcpToolset> {
  return tool.type === "mcp_toolset";
}

function isOfClient(tool: Tool): tool is z.output<typeof clientTool> {
  return tool.type === null || tool.type === undefined || tool.type === "custom";
}

function isDeferred(tool: Tool): tool is z.output<typeof clientTool> {
  return isOfClient(tool) && tool.defer_loading === true;
}

function specsOf(tools: ToolFields["tools"]): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) =>
    isOfClient(tool) ? [toolSpec(tool.name, { ...tool, parameters: tool.input_schema })] : [],
  );
}

/** Maps the names of server tools in this protocol to the names that the model sees. */
const builtInNames: ReadonlyMap<string, string> = new Map([
  ["code_execution", serverToolNames.code_interpreter],
  ["web_search", webToolNames.search],
  ["web_fetch", webToolNames.page],
]);

/** Returns the tool choice. A tool of the client takes precedence over a server tool of the same name. */
export function choiceOf({ tools, tool_choice: wanted }: ToolFields): ToolChoice {
  switch (wanted?.type) {
    case "none":
      return { mode: "none", names: null };
    case "any":
      return { mode: "required", names: null };
    case "tool":
      return { mode: "one", names: [chosenName(wanted.name, clientToolNames({ tools }))] };
    default:
      return anyTool;
  }
}

function chosenName(name: string, ofClient: readonly string[]): string {
  return ofClient.includes(name) ? name : (builtInNames.get(name) ?? name);
}
