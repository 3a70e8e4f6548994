// Agent loop of a server: creates it from the settings, and starts the threads and processes of its tools.
import { AgentLoop } from "../../../actors/agent-loop/agent-loop.ts";
import { approvalTimeoutMs } from "../../../actors/agent-loop/approvals.ts";
import { fetchFile } from "../../../actors/agent-loop/files/fetch-file.ts";
import { maxToolRounds, type ToolGroup } from "../../../actors/api/agent/agents.ts";
import type { ToolSource } from "../../../actors/api/agent/server-tools.ts";
import type { Web } from "../../../actors/api/agent/web.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import { realClock } from "../../../runtime/clock.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config } from "../../config/config.ts";
import type { State } from "../state.ts";
import { toolsInit } from "./sandboxed-tools.ts";
import { openToolServers, type ToolServers, waitForServers } from "./tool-servers.ts";
import { openWeb } from "./web.ts";

/** Time limit in ms for the others to end if a thread or process cannot start. */
const startFailedMs = 2000;

export interface OpenAgents {
  readonly loop: AgentLoop;
  stop(deadlineMs: number): Promise<void>;
}

/**
 * Creates the agent loop. `sources`: server tools of the program that embeds the server. Starts the tools process if a sandboxed
 * tool is enabled, the web thread if web search is enabled, and the MCP thread if `mcp_config` is set. Throws config_invalid if
 * their settings or the sandbox cannot be used.
 */
export async function openAgents(
  config: Config,
  { files, sessions, skills }: Pick<State, "files" | "sessions" | "skills">,
  inference: Pick<Inference, "generate" | "embed">,
  sources: readonly ToolSource[],
  log: Logger,
): Promise<OpenAgents> {
  const { server, troupe } = config;
  const sandboxed: readonly ToolGroup[] = [
    ...(config.agent || config.enableCodeExecution ? (["code_execution"] as const) : []),
    ...(config.agent || config.enableShell ? (["shell"] as const) : []),
  ];
  const searches = config.agent || config.enableSearch;
  const groups = searches ? ([...sandboxed, "web_search"] as const) : sandboxed;
  const init = toolsInit(config, sandboxed, files.stagingFolder);
  const tools = new ToolsClient({ init, log });
  const stops = [(deadlineMs: number) => tools.stop(deadlineMs)];
  const stop = async (deadlineMs: number): Promise<void> => {
    await Promise.all(stops.map((end) => end(deadlineMs)));
  };
  let web: Web | null = null;
  let servers: ToolServers | null = null;
  try {
    if (sandboxed.length > 0) await tools.start();
    if (searches) {
      const client = await openWeb(config, inference, log);
      stops.push((deadlineMs) => client.stop(deadlineMs));
      web = client;
    }
    servers = await openToolServers(config, init.sandbox, log);
    const client = servers?.client;
    if (client !== undefined) stops.push((deadlineMs) => client.stop(deadlineMs));
    // The command `run` waits for the MCP servers, because it may have only one request. A server does not wait, because later
    // requests can use the tools of MCP servers that connect later.
    if (servers !== null && config.command === "run") await waitForServers(servers, log);
  } catch (error) {
    await stop(startFailedMs);
    throw error;
  }
  const dispatch =
    server.toolDispatchUrl === null
      ? null
      : {
          url: server.toolDispatchUrl,
          timeoutMs: troupe.toolDispatchTimeoutSecs * 1000,
          secret: troupe.toolDispatchSecret,
        };
  const settings = {
    groups,
    permission: config.run.yes ? ("auto" as const) : config.agentPermission,
    // A user at a terminal has no time limit for a decision.
    approvalLimitMs: config.command === "run" ? null : approvalTimeoutMs,
    maxRounds: server.maxToolRounds ?? maxToolRounds,
    dispatch,
    hasClientTools: config.command !== "run",
    registersServerTools: servers?.registersTools ?? true,
  };
  const loop = new AgentLoop({
    settings,
    inference,
    tools,
    web,
    sources: servers === null ? sources : [...sources, servers.client],
    files,
    sessions,
    skills,
    fetchFile,
    clock: realClock,
  });
  return { loop, stop };
}
