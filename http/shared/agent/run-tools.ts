// Tools of an agent run: decides whether a request uses the agent loop, and which server tools it offers to the model.
import type {
  AgentOptions,
  OfferedServerTool,
  Permission,
  SkillReference,
  ToolGroup,
} from "../../../actors/api/agent/agents.ts";
import type { ToolSpec } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { isOfServers, type NamedServer, requireServers } from "../fields/tools/mcp-tool.ts";
import { MAX_TOOLS } from "../fields/tools/tool-fields.ts";
import type { ToolChoice } from "../fields/tools/tool-use.ts";
import type { WebUse } from "../fields/tools/web-search.ts";
import { type AgentFields, groupNames, type NamedGroups, noWriter, specsOf } from "./request-fields.ts";

const features = {
  code_execution: { what: "code execution", setting: "enable_code_execution" },
  shell: { what: "the shell tool", setting: "enable_shell" },
  web_search: { what: "web search", setting: "enable_search" },
} as const satisfies Record<ToolGroup, object>;

/** Tools that the server offers. Body translators receive them as a parameter. */
export interface OfferedTools {
  readonly groups: readonly ToolGroup[];
  /** Whether client-defined functions are called by the server (tool_dispatch_url) instead of the client. */
  readonly dispatches: boolean;
  readonly permission: Permission;
  readonly serverTools: readonly OfferedServerTool[];
  /** Whether a request without a list of MCP servers gets the tools of all configured MCP servers. */
  readonly registersServerTools: boolean;
}

/** Properties of a request that determine its tools. */
export interface ToolNeeds {
  readonly named: NamedGroups;
  readonly fields: AgentFields;
  readonly hasFiles: boolean;
  /** Names of the functions that the client runs. */
  readonly functions: readonly string[];
  /** MCP servers that the request names. */
  readonly servers: readonly NamedServer[];
  readonly skills: readonly SkillReference[];
  readonly web: WebUse;
  readonly choice: ToolChoice;
  /** Whether the model may call tools: the request has one choice and no output format, and continues no message. */
  readonly hasRoom: boolean;
}

/** Tools of a request that uses the agent loop. */
export interface RunTools extends Pick<AgentOptions, "groups" | "serverTools" | "isPlain"> {
  /** Declarations of all server tools offered to the model. */
  readonly specs: readonly ToolSpec[];
}

/**
 * Returns the tools of a request; null if the request does not use the agent loop. A request without any agent feature still
 * uses the loop if there are server tools that every request offers and whose calls need no approval. Throws `unsupported` for
 * a feature that the server does not have, and invalid_value for too many tools.
 */
export function runTools(needs: ToolNeeds, offered: OfferedTools | null): RunTools | null {
  const named = agentGroups(needs, offered);
  requireServers(needs.servers, offered?.serverTools ?? []);
  if (offered === null) return null;
  const asksForTools = needs.servers.length > 0 || needs.skills.length > 0;
  const groups = named ?? (asksForTools ? [] : null);
  const tools = serverToolsOf(needs, offered);
  const isPlain = groups === null;
  if (isPlain && (tools.length === 0 || offered.permission !== "auto" || !isCallable(needs))) return null;
  const builtIn = builtInSpecs(groups ?? [], needs.web);
  const room = MAX_TOOLS - builtIn.length - needs.functions.length;
  // Too many tools are an error only if the request names an MCP server. For other requests, the surplus tools are not offered.
  if (tools.length > room && needs.servers.length > 0) throw tooMany(MAX_TOOLS - room + tools.length);
  const fitting = tools.slice(0, Math.max(0, room)).map(({ spec }) => spec);
  if (isPlain && fitting.length === 0) return null;
  const serverTools = fitting.map(({ name }) => name);
  return { groups: groups ?? [], serverTools, isPlain, specs: [...builtIn, ...fitting] };
}

/** Returns the declarations of the built-in tools. Descriptions in the request replace the default ones. */
export function builtInSpecs(groups: readonly ToolGroup[], web: WebUse): readonly ToolSpec[] {
  const offered = specsOf(groups).filter(({ name }) => !web.withoutTools.includes(name));
  return offered.map((spec) => ({ ...spec, description: web.descriptions[spec.name] ?? spec.description }));
}

/** Returns the server tools of a request. A client function replaces the server tool with the same name. */
function serverToolsOf(
  { functions, servers, hasRoom }: ToolNeeds,
  { serverTools, registersServerTools }: OfferedTools,
): readonly OfferedServerTool[] {
  return serverTools.filter((tool) => {
    if (functions.includes(tool.spec.name)) return false;
    return isOfServers(tool, servers) ?? ((registersServerTools || tool.server === null) && hasRoom);
  });
}

/**
 * Returns whether the model may call server tools. It may not if the request requires a call of a client function, because the
 * client then expects that call, not an answer after a server call.
 */
function isCallable({ choice: { mode, names }, functions, hasRoom }: ToolNeeds): boolean {
  if (!hasRoom || mode === "none") return false;
  if (mode === "auto") return names === null || names.some((name) => !functions.includes(name));
  return names === null ? functions.length === 0 : !names.some((name) => functions.includes(name));
}

/**
 * Returns the features of a request that uses the agent loop: those it switches on or, if there are none, all features of the
 * server that it does not switch off. Returns null if the request does not use the loop. Throws `unsupported` for a feature
 * that the server does not have.
 */
function agentGroups(
  { named, fields, hasFiles, functions, skills, web }: ToolNeeds,
  offered: OfferedTools | null,
): readonly ToolGroup[] | null {
  for (const group of groupNames) {
    if (named[group] === true && !(offered?.groups.includes(group) ?? false)) throw notEnabled(group, fields, web);
  }
  const { agent_permission, max_tool_rounds, session_id } = fields;
  if (offered === null) {
    if (skills.length > 0) throw noAgents("a skill", "skills");
    if (hasFiles) throw noAgents("a file in a message", "messages");
    if (isGiven(session_id)) throw noAgents("session_id", "session_id");
    if ((fields.files?.length ?? 0) > 0) throw noWriter();
    return null;
  }
  const wanted = groupNames.filter((group) => named[group] === true);
  if (wanted.length > 0) return wanted;
  const wantsTools = isGiven(agent_permission) || isGiven(max_tool_rounds) || (fields.files?.length ?? 0) > 0;
  const available = offered.groups.filter((group) => named[group] !== false);
  if (isGiven(session_id) || hasFiles || (wantsTools && available.length > 0)) return available;
  if ((fields.files?.length ?? 0) > 0) throw noWriter();
  return offered.dispatches && functions.length > 0 ? [] : null;
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function notEnabled(group: ToolGroup, fields: AgentFields, { field }: WebUse): ServerError {
  const { what, setting } = features[group];
  const param = fields[setting] === true ? setting : group === "web_search" ? field : "tools";
  const message = `${what} is not enabled on this server; the setting ${setting} enables it`;
  return new ServerError("unsupported", message, { param });
}

function noAgents(what: string, param: string): ServerError {
  return new ServerError("unsupported", `${what} cannot be used: this server keeps no files and sessions`, { param });
}

function tooMany(count: number): ServerError {
  const message =
    `expected at most ${MAX_TOOLS} tools with those of the server, got ${count}: send fewer functions, or name the MCP ` +
    "servers with allowed_tools";
  return new ServerError("invalid_value", message, { param: "tools" });
}
