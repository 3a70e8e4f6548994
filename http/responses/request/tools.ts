// Owns the tools of a request for a response, in this protocol's flat shape, and what they come to. Clients that were written
// for chat send them nested: taken too. Functions in a namespace are to the model functions of longer names. Tools that this
// server would have to run itself are refused by name.
import { z } from "zod";
import type { ToolSpec, ToolUse } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, refused } from "../../shared/fields/fields.ts";
import {
  choiceFields,
  declaration,
  hostedTypes,
  MAX_TOOLS,
  namedFunction,
  nameOf,
  refusedChoice,
  refusedTools,
  toolDescription,
  toolName,
  toolSpec,
} from "../../shared/fields/tool-fields.ts";
import { anyTool, type ToolChoice, toolConflicts, toolUse } from "../../shared/fields/tool-use.ts";

/** Between the name of a namespace and that of a function in it. */
const SEPARATOR = "__";
const MAX_NAME_LENGTH = 64;

const name = toolName(MAX_NAME_LENGTH);
/** As the model knows a function: the names of a namespace and of a function in it may be one. */
const chosenName = toolName(2 * MAX_NAME_LENGTH + SEPARATOR.length);

const functionTool = z
  .strictObject({
    type: z.literal("function"),
    name: name.optional(),
    ...declaration,
    function: z
      .strictObject({ name, ...declaration })
      .optional()
      .meta({ description: "The rest in the shape that chat completions have" }),
    defer_loading: refused("expected all tools at once: they are not searched for", (value) => value === false),
    allowed_callers: ignored(z.array(z.string()), "the model is the only one that calls"),
    output_schema: ignored(z.unknown(), "what a call comes to is read as it is"),
  })
  .refine((tool) => (tool.name === undefined) !== (tool.function === undefined), {
    error: 'expected one name, as {"type": "function", "name": …, "parameters": …}',
  });

const hostedTool = refusedTools(hostedTypes);

const namespaceTool = z.strictObject({
  type: z.literal("namespace"),
  name,
  description: ignored(
    toolDescription,
    "templates have no place for it; the model is shown the descriptions of the functions",
  ),
  tools: z
    .array(
      z.discriminatedUnion("type", [functionTool, hostedTool], {
        error: expectedVariant("a tool of a namespace", "type", ["function"]),
      }),
    )
    .max(MAX_TOOLS)
    .meta({
      description: `The model knows each by both names, as namespace${SEPARATOR}function; calls show them apart`,
    }),
});

const tool = z.discriminatedUnion("type", [functionTool, namespaceTool, hostedTool], {
  error: expectedVariant("a tool", "type", ["function", "namespace", ...hostedTypes]),
});

const named = namedFunction(chosenName, '{"type": "function", "name": …}');

const namedTool = z.discriminatedUnion("type", [named, refusedChoice], {
  error: expectedVariant("the name of a tool", "type", ["function"]),
});

const allowedTools = z.strictObject({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: z.array(namedTool).max(MAX_TOOLS),
});

const choice = z.discriminatedUnion("type", [named, allowedTools, refusedChoice], {
  error: expectedVariant("a choice of tools", "type", ["function", "allowed_tools"]),
});

export const toolFields = {
  tools: z
    .array(tool)
    .max(MAX_TOOLS)
    .refine((tools) => functionCount(tools) <= MAX_TOOLS, {
      error: `expected at most ${MAX_TOOLS} functions, those of namespaces included; got more`,
      abort: true,
    })
    .nullish()
    .meta({ description: "Functions the model may call; the client runs them" }),
  ...choiceFields(choice),
} as const;

export type ToolFields = z.output<z.ZodObject<typeof toolFields>>;
type Tool = z.output<typeof tool>;
type FunctionTool = z.output<typeof functionTool>;
type NamedTool = z.output<typeof namedTool>;

/** How clients know a function. */
export interface FunctionName {
  readonly name: string;
  readonly namespace: string;
}

/** How the model knows a function. */
export function modelName({ name, namespace }: { readonly name: string; readonly namespace: string | null }): string {
  return namespace === null || namespace === "" ? name : `${namespace}${SEPARATOR}${name}`;
}

/** The functions of namespaces, by how the model knows them. */
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

/** null where nothing may be called. */
export function requestedTools(fields: ToolFields): ToolUse | null {
  return toolUse(specsOf(fields), choiceOf(fields), fields.parallel_tool_calls ?? true);
}

/** What contradicts itself in the tools. */
export function requestedToolConflicts(fields: ToolFields): Iterable<Conflict> {
  return toolConflicts(specsOf(fields), choiceOf(fields));
}

/** The tools as a response shows them. */
export function wireTools({ tools }: ToolFields): readonly object[] {
  return (tools ?? []).map((tool) => {
    if (tool.type !== "namespace") return wireFunction(tool);
    const { type, name, description } = tool;
    return { type, name, description: description ?? null, tools: tool.tools.map(wireFunction) };
  });
}

function wireFunction(tool: FunctionTool): object {
  return { type: "function", ...specOf(tool, null) };
}

/** The choice as a response shows it. */
export function wireToolChoice({ tool_choice: choice }: ToolFields): unknown {
  if (choice === null || choice === undefined) return "auto";
  if (typeof choice === "string") return choice;
  if (choice.type === "function") return wireName(choice);
  return { ...choice, tools: choice.tools.map(wireName) };
}

function wireName(tool: NamedTool): object {
  return { type: "function", name: nameOf(tool) };
}

function functionCount(tools: readonly Tool[]): number {
  return tools.reduce((count, tool) => count + (tool.type === "namespace" ? tool.tools.length : 1), 0);
}

function specsOf({ tools }: ToolFields): readonly ToolSpec[] {
  return (tools ?? []).flatMap((tool) =>
    tool.type === "namespace" ? tool.tools.map((inner) => specOf(inner, tool.name)) : [specOf(tool, null)],
  );
}

function specOf(tool: FunctionTool, namespace: string | null): ToolSpec {
  return toolSpec(modelName({ name: nameOf(tool), namespace }), tool.function ?? tool);
}

function choiceOf({ tool_choice }: ToolFields): ToolChoice {
  const choice = tool_choice ?? "auto";
  if (typeof choice === "string") return { ...anyTool, mode: choice };
  if (choice.type === "function") return { mode: "required", names: [nameOf(choice)] };
  return { mode: choice.mode, names: choice.tools.map(nameOf) };
}
