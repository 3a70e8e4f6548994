// Agent loop of a server: creates it from the settings, and starts the tools thread and the MCP place.
import { AgentLoop } from "../../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../../actors/agent-loop/files/fetch-file.ts";
import { maxToolRounds, type ToolGroup } from "../../../actors/api/agent/agents.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import { realClock } from "../../../runtime/clock.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config } from "../../config/config.ts";
import type { State } from "../state.ts";
import { toolsInit } from "./sandboxed-tools.ts";
import { openToolServers } from "./tool-servers.ts";

/** Time in ms for the tools thread to stop if the agent loop cannot be created. */
const stopMs = 5000;

export interface OpenAgents {
  readonly loop: AgentLoop;
  stop(deadlineMs: number): Promise<void>;
}

/**
 * Creates the agent loop. The tools thread starts if a tool is enabled, the MCP place if `mcp_config` is set. Throws
 * config_invalid if their settings or the sandbox cannot be used.
 */
export async function openAgents(
  config: Config,
  { files, sessions }: Pick<State, "files" | "sessions">,
  inference: Pick<Inference, "generate">,
  log: Logger,
): Promise<OpenAgents> {
  const { server, troupe } = config;
  const groups: readonly ToolGroup[] = [
    ...(config.agent || config.enableCodeExecution ? (["code_execution"] as const) : []),
    ...(config.agent || config.enableShell ? (["shell"] as const) : []),
  ];
  const init = toolsInit(config, groups, files.stagingFolder);
  const tools = new ToolsClient({ init, log });
  if (groups.length > 0) await tools.start();
  const servers = await openToolServers(config, init.sandbox, log).catch(async (error) => {
    await tools.stop(stopMs);
    throw error;
  });
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
    permission: config.agentPermission,
    maxRounds: server.maxToolRounds ?? maxToolRounds,
    dispatch,
    registersServerTools: servers?.registersTools ?? false,
  };
  const loop = new AgentLoop({
    settings,
    inference,
    tools,
    web: null,
    sources: servers === null ? [] : [servers.client],
    files,
    sessions,
    fetchFile,
    clock: realClock,
  });
  return {
    loop,
    async stop(deadlineMs) {
      await Promise.all([tools.stop(deadlineMs), servers?.client.stop(deadlineMs)]);
    },
  };
}
