// Tool servers: starts the client that connects to the configured MCP servers.
import { setTimeout as sleep } from "node:timers/promises";
import type { McpPlaceInit } from "../../../actors/api/agent/mcp.ts";
import { McpClient } from "../../../actors/front/mcp-client.ts";
import { builtInNames } from "../../../actors/tools/schemas.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { SandboxSettings } from "../../../runtime/sandbox/sandbox.ts";
import type { Config } from "../../config/config.ts";
import { version } from "../../version.ts";
import { readMcpConfig } from "./mcp-config.ts";
import { mcpServerSettings } from "./mcp-settings.ts";

const mailboxLimit = 4096;
/** Maximum time in ms for which a command waits for the servers before its first run. */
const connectMs = 15_000;
const pollMs = 20;

export interface ToolServers {
  readonly client: McpClient;
  /** Number of enabled servers. */
  readonly count: number;
  /** Whether every request may use the tools. If false, only requests that name the tools may. */
  readonly registersTools: boolean;
}

/**
 * Starts the client. It connects to the servers in the background. Returns null if no configuration file is set. Throws
 * config_invalid if the file or the sandbox cannot be used. Server processes run in the sandbox if its profile is set to
 * `restricted`.
 */
export async function openToolServers(
  { mcpConfig: path, sandbox }: Pick<Config, "mcpConfig" | "sandbox">,
  sandboxSettings: SandboxSettings,
  log: Logger,
): Promise<ToolServers | null> {
  if (path === null) return null;
  const config = await readMcpConfig(path);
  const init: McpPlaceInit = {
    servers: mcpServerSettings(config, path, process.env),
    version,
    maxConcurrentCalls: config.max_concurrent_calls,
    reservedNames: builtInNames,
    sandbox: sandbox.profile === "restricted" ? sandboxSettings : null,
    mailboxLimit,
  };
  const client = new McpClient({ init, log });
  await client.start();
  return { client, count: init.servers.length, registersTools: config.auto_register_tools };
}

/**
 * Waits until all servers are connected, but at most for `connectMs`. The tools of a slower server become available when it is
 * connected.
 */
export async function waitForServers({ client, count }: ToolServers, log: Logger): Promise<void> {
  for (const end = performance.now() + connectMs; client.connected < count; await sleep(pollMs)) {
    if (performance.now() < end) continue;
    log.warn({ connected: client.connected, configured: count }, "some MCP servers are not connected yet");
    return;
  }
}
