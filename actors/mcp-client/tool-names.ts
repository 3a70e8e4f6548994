// Tool names: the names under which models see the tools of all MCP servers. The names are unique and valid in all API protocols.
import type { McpServerSettings, McpTool } from "../api/agent/mcp.ts";

const MAX_LENGTH = 128;
const unfit = /[^a-zA-Z0-9_-]/g;

/** A tool that has not been given its name for models yet. `name`: its name without the server's prefix. */
export interface ListedTool extends Pick<McpTool, "action" | "tool"> {
  readonly name: string;
  readonly description: string | null;
  readonly parameters: unknown;
}

export interface ServerTools {
  readonly settings: Pick<McpServerSettings, "id" | "name" | "toolPrefix">;
  readonly tools: readonly ListedTool[];
}

/**
 * Names the tools of all servers, in order. If a tool's name is taken, the name of its server is added as a prefix. `reserved`:
 * names that no tool may have. `onRenamed` is called with a message for each tool that was renamed.
 */
export function nameTools(
  servers: readonly ServerTools[],
  reserved: readonly string[],
  onRenamed: (message: string) => void,
): readonly McpTool[] {
  const taken = new Set(reserved);
  const tools: McpTool[] = [];
  for (const { settings, tools: listed } of servers) {
    for (const tool of listed) {
      const wanted = settings.toolPrefix === null ? tool.name : `${settings.toolPrefix}_${tool.name}`;
      const name = [wanted, `${settings.name}_${tool.name}`].map(fitting).find((candidate) => !taken.has(candidate));
      if (name !== wanted) onRenamed(renamed(settings.name, tool.name, wanted, name));
      if (name === undefined) continue;
      taken.add(name);
      tools.push(named(settings, tool, name));
    }
  }
  return tools;
}

function fitting(name: string): string {
  return name.replace(unfit, "_").slice(0, MAX_LENGTH) || "_";
}

function named(settings: ServerTools["settings"], tool: ListedTool, name: string): McpTool {
  const { action, description, parameters } = tool;
  return {
    spec: { name, description, parameters, strict: false },
    server: settings.id,
    serverName: settings.name,
    action,
    tool: tool.tool,
  };
}

function renamed(server: string, tool: string, wanted: string, name: string | undefined): string {
  const which = `tool "${tool.slice(0, MAX_LENGTH)}" of MCP server "${server}"`;
  if (name === undefined) return `${which} is not offered: other tools have its names; set another tool_prefix`;
  const reason =
    fitting(wanted) === name
      ? "its name has characters or a length that models cannot use"
      : "another tool has its name";
  return `${which} is called "${name}": ${reason}`;
}
