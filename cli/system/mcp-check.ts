// Check of the MCP servers that are configured with `mcp_config`: reads the file, and checks that the programs of the servers
// exist. Starts no server and connects to none.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { McpServerSettings } from "../../actors/api/agent/mcp.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { Check } from "../../runtime/host/system.ts";
import { findProgram } from "../../runtime/sandbox/host-isolation.ts";
import { readMcpConfig } from "../assembly/agents/mcp-config.ts";
import { mcpServerSettings } from "../assembly/agents/mcp-settings.ts";

const name = "mcp_servers";

/** Runs the check. `path`: path of the configuration file. */
export async function mcpCheck(path: string): Promise<Check> {
  let servers: readonly McpServerSettings[];
  try {
    servers = mcpServerSettings(await readMcpConfig(path), path, process.env);
  } catch (error) {
    return { name, status: "error", message: toErrorRecord(error).message, suggestion: "correct the file" };
  }
  const missing = servers.filter((server) => !hasProgram(server)).map((server) => server.name);
  if (missing.length > 0) {
    const message = `the program is not found of the MCP servers ${missing.join(", ")}`;
    return { name, status: "warn", message, suggestion: "install it, or correct command in the file" };
  }
  const listed = servers
    .map((server) => `${server.name} (${server.source.type === "process" ? "stdio" : server.source.type})`)
    .join(", ");
  return { name, status: "ok", message: `${servers.length} in ${path}${listed === "" ? "" : `: ${listed}`}` };
}

function hasProgram({ source }: McpServerSettings): boolean {
  if (source.type !== "process") return true;
  const { command, workFolder } = source;
  return command.includes("/") ? existsSync(resolve(workFolder ?? ".", command)) : findProgram(command) !== null;
}
