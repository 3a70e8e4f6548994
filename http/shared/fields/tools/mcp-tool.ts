// MCP servers in requests: their names, their schemas, and the tools that they add to a request. The operator configures the
// servers; requests only name them.
import { z } from "zod";
import type { OfferedServerTool } from "../../../../actors/api/agent/agents.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { expected } from "../../../issues.ts";
import type { Conflict } from "../conflicts.ts";
import { ignored, refused } from "../fields.ts";

const MAX_LABEL_LENGTH = 256;
const MAX_ALLOWED = 256;

/** MCP server that a request names. */
export interface NamedServer {
  readonly label: string;
  /** Names of the tools to offer; null: all tools of this MCP server. */
  readonly allowed: readonly string[] | null;
  /** Names of the tools not to offer. */
  readonly denied?: readonly string[];
}

export const CONFIGURED = "the operator of this server configures MCP servers; name one with server_label";

export const serverLabel = z.string().min(1).max(MAX_LABEL_LENGTH);
const names = z.array(z.string().min(1).max(MAX_LABEL_LENGTH)).max(MAX_ALLOWED);
const toolFilter = z.strictObject({
  tool_names: names.nullish(),
  read_only: refused("tools are not known to be read-only; list them in tool_names", (value) => value === false),
});

/** Schema of the tool type that offers the tools of a configured MCP server. */
export const mcpTool = z.strictObject({
  type: z.literal("mcp"),
  server_label: serverLabel.meta({ description: "Name of an MCP server in the server's settings." }),
  allowed_tools: z
    .union([names, toolFilter], { error: expected("a list of tool names") })
    .nullish()
    .meta({ description: "Names of the tools to offer; by default all." }),
  require_approval: z
    .union(
      [z.enum(["always", "never"]), z.strictObject({ always: toolFilter.nullish(), never: toolFilter.nullish() })],
      { error: expected('"always", "never" or filters of tools') },
    )
    .nullish()
    .meta({
      description:
        "Any value other than never acts as agent_permission ask for all tools of the request. Default: the server's permission.",
    }),
  server_description: ignored(z.string(), "the tools have their own descriptions"),
  allowed_callers: ignored(z.array(z.string()), "only the model calls tools"),
  defer_loading: refused("deferred tools are not supported; send false", (value) => value === false),
  server_url: refused(CONFIGURED),
  connector_id: refused(CONFIGURED),
  tunnel_id: refused(CONFIGURED),
  authorization: refused(CONFIGURED),
  headers: refused(CONFIGURED),
});

export type McpTool = z.output<typeof mcpTool>;

export function namedServer({ server_label: label, allowed_tools: allowed }: McpTool): NamedServer {
  const list = Array.isArray(allowed) ? allowed : allowed?.tool_names;
  return { label, allowed: list ?? null };
}

/** Schema of a tool choice that names a tool of an MCP server. */
export const mcpChoice = z.strictObject({
  type: z.literal("mcp"),
  server_label: serverLabel,
  name: z.string().min(1).max(MAX_LABEL_LENGTH).meta({ description: "Name of the tool." }),
});

/** Returns whether calls of tools of an MCP server need an approval. */
export function asksForApproval({ require_approval: required }: McpTool): boolean {
  return required !== null && required !== undefined && required !== "never";
}

export function* approvalConflicts(
  tools: readonly McpTool[],
  isStreamed: boolean | null | undefined,
): Iterable<Conflict> {
  if (isStreamed === true || !tools.some(asksForApproval)) return;
  yield [
    "tools",
    "require_approval needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}",
  ];
}

/** Returns whether the named servers offer a tool; null if the request does not name the tool's server. */
export function isOfServers({ spec, server }: OfferedServerTool, servers: readonly NamedServer[]): boolean | null {
  const own = servers.filter(({ label }) => label === server);
  if (own.length === 0) return null;
  return own.some(({ allowed, denied = [] }) => (allowed?.includes(spec.name) ?? true) && !denied.includes(spec.name));
}

/** Throws invalid_value for an unknown MCP server, a server that currently has no tools, or an unknown tool of a server. */
export function requireServers(servers: readonly NamedServer[], offered: readonly OfferedServerTool[]): void {
  for (const { label, allowed, denied } of servers) {
    const tools = offered.filter(({ server }) => server === label).map(({ spec }) => spec.name);
    if (tools.length === 0) throw unknownServer(label, offered);
    const unknown = [...(allowed ?? []), ...(denied ?? [])].find((name) => !tools.includes(name));
    if (unknown !== undefined) throw unknownTool(label, unknown, tools);
  }
}

function unknownServer(label: string, offered: readonly OfferedServerTool[]): ServerError {
  const known = [...new Set(offered.flatMap(({ server }) => server ?? []))].join(", ");
  const there = known === "" ? "none is connected" : known;
  const message = `expected a connected MCP server of this server's settings (${there}), got ${JSON.stringify(label)}`;
  return new ServerError("invalid_value", message, { param: "tools" });
}

function unknownTool(label: string, name: string, tools: readonly string[]): ServerError {
  const message = `expected a tool of the MCP server ${label} (${tools.slice(0, 32).join(", ")}), got ${JSON.stringify(name)}`;
  return new ServerError("invalid_value", message, { param: "tools" });
}
