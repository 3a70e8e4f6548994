// Tools of one MCP server: lists and runs them. For a server with resources or prompts, tools to read these are added.
import type { RequestOptions, Tool } from "@modelcontextprotocol/client";
import { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import type { McpCall } from "../api/agent/mcp.ts";
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { listPrompts, listResources, listTools, maxListed } from "./lists.ts";
import { type McpSession, unlimited } from "./mcp-session.ts";
import { jsonResult, promptResult, resourceResult, toolResult } from "./results.ts";
import type { ListedTool } from "./tool-names.ts";
import { matchesAny } from "./uri-patterns.ts";

/** Maximum number of characters of a tool's declaration as JSON. A tool with a longer declaration is omitted. */
const MAX_DECLARATION_LENGTH = 65_536;

/** Maximum number of characters of a tool's name in messages. */
const MAX_SHOWN = 128;

const anyArguments = z.record(z.string(), z.unknown());
const readArguments = z.object({ uri: z.string() });
const promptArguments = z.object({ name: z.string(), arguments: z.record(z.string(), z.string()).nullish() });

export type CallOptions = Required<Pick<RequestOptions, "signal" | "onprogress">>;

/** Lists the tools of a server. `onLeftOut` is called with a message about tools that are omitted. */
export async function toolsOfServer(
  session: McpSession,
  patterns: readonly string[] | null,
  onLeftOut: (message: string) => void,
): Promise<readonly ListedTool[]> {
  const listed = await listTools(session);
  if (listed.length > maxListed) onLeftOut(`it has more than ${maxListed} tools; only the first ones are offered`);
  const { resources, prompts } = session.capabilities;
  const readsResources = resources !== undefined && patterns?.length !== 0;
  return [
    ...listed.slice(0, maxListed).flatMap((tool) => declaration(tool, onLeftOut)),
    ...(readsResources ? resourceTools : []),
    ...(prompts === undefined ? [] : promptTools),
  ];
}

/** Runs a call. Rejects with the server's error. */
export async function runTool(
  session: McpSession,
  { action, tool, arguments: text }: McpCall,
  patterns: readonly string[] | null,
  { signal, onprogress }: CallOptions,
): Promise<ServerToolResult> {
  const options = { ...unlimited, signal };
  switch (action) {
    case "call": {
      const params = { name: tool, arguments: argumentsOf(anyArguments, text) };
      return toolResult(await session.ask((client) => client.callTool(params, { ...options, onprogress })));
    }
    case "list_resources": {
      const all = await listResources(session, signal);
      return jsonResult(all.filter((one) => "uriTemplate" in one || isAllowed(patterns, one.uri)).map(shownResource));
    }
    case "read_resource": {
      const { uri } = argumentsOf(readArguments, text);
      if (!isAllowed(patterns, uri))
        throw new ServerError("forbidden", `the resource "${uri}" may not be read (resources)`);
      return resourceResult(await session.ask((client) => client.readResource({ uri }, options)));
    }
    case "list_prompts":
      return jsonResult(await listPrompts(session, signal));
    case "get_prompt": {
      const { name, arguments: args } = argumentsOf(promptArguments, text);
      const params = { name, ...(args == null ? {} : { arguments: args }) };
      return promptResult(await session.ask((client) => client.getPrompt(params, options)));
    }
  }
}

function declaration(
  { name, description, title, inputSchema, execution }: Tool,
  onLeftOut: (message: string) => void,
): readonly ListedTool[] {
  const tool = {
    action: "call",
    tool: name,
    name,
    description: description ?? title ?? null,
    parameters: inputSchema,
  } as const;
  if (execution?.taskSupport === "required") {
    onLeftOut(
      `its tool "${name.slice(0, MAX_SHOWN)}" is not offered: it can only run as a task, which is not supported`,
    );
    return [];
  }
  if (JSON.stringify(tool).length <= MAX_DECLARATION_LENGTH) return [tool];
  onLeftOut(
    `its tool "${name.slice(0, MAX_SHOWN)}" is not offered: its declaration has more than ${MAX_DECLARATION_LENGTH} characters`,
  );
  return [];
}

function isAllowed(patterns: readonly string[] | null, uri: string): boolean {
  return patterns === null || matchesAny(patterns, uri);
}

function shownResource(resource: Awaited<ReturnType<typeof listResources>>[number]): object {
  const { name, description, mimeType } = resource;
  const address = "uriTemplate" in resource ? { uri_template: resource.uriTemplate } : { uri: resource.uri };
  return { ...address, name, description, mime_type: mimeType };
}

function argumentsOf<T>(schema: z.ZodType<T>, text: string): T {
  const parsed = schema.safeParse(text.trim() === "" ? {} : jsonOf(text));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const where = issue === undefined || issue.path.length === 0 ? "" : `${issue.path.join(".")}: `;
  throw new ServerError("invalid_value", `the arguments do not fit the tool: ${where}${issue?.message ?? "invalid"}`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ServerError("invalid_value", "the arguments expect a JSON object; got text that is not JSON");
  }
}

const noParameters = { type: "object", properties: {} };

const resourceTools: readonly ListedTool[] = [
  {
    action: "list_resources",
    tool: "list_resources",
    name: "list_resources",
    description: "List the resources of the server: URIs, names and descriptions.",
    parameters: noParameters,
  },
  {
    action: "read_resource",
    tool: "read_resource",
    name: "read_resource",
    description: "Read a resource of the server by its URI.",
    parameters: { type: "object", properties: { uri: { type: "string" } }, required: ["uri"] },
  },
];

const promptTools: readonly ListedTool[] = [
  {
    action: "list_prompts",
    tool: "list_prompts",
    name: "list_prompts",
    description: "List the prompts of the server: names, descriptions and arguments.",
    parameters: noParameters,
  },
  {
    action: "get_prompt",
    tool: "get_prompt",
    name: "get_prompt",
    description: "Get a prompt of the server, filled in with arguments.",
    parameters: {
      type: "object",
      properties: {
        name: { type: "string" },
        arguments: { type: "object", additionalProperties: { type: "string" } },
      },
      required: ["name"],
    },
  },
];
