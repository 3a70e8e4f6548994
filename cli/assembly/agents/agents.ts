// Agent loop of a server: creates it from the settings, and starts the threads of its tools.
import { AgentLoop } from "../../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../../actors/agent-loop/files/fetch-file.ts";
import { maxToolRounds, type ToolGroup } from "../../../actors/api/agent/agents.ts";
import type { ToolSource } from "../../../actors/api/agent/server-tools.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import { realClock } from "../../../runtime/clock.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config } from "../../config/config.ts";
import type { State } from "../state.ts";
import { toolsInit } from "./sandboxed-tools.ts";
import { openWeb } from "./web.ts";

/** Time in ms for the threads to end if one of them cannot start. */
const startFailedMs = 2000;

export interface OpenAgents {
  readonly loop: AgentLoop;
  stop(deadlineMs: number): Promise<void>;
}

/**
 * Creates the agent loop. `sources`: server tools of the program that embeds the server. The tools thread starts if a tool in
 * the sandbox is enabled, the web thread if web search is. Throws config_invalid if the sandbox cannot be used.
 */
export async function openAgents(
  config: Config,
  { files, sessions }: Pick<State, "files" | "sessions">,
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
  const tools = new ToolsClient({ init: toolsInit(config, sandboxed, files.stagingFolder), log });
  const web = searches ? await openWeb(config, inference, log) : null;
  const stop = async (deadlineMs: number): Promise<void> => {
    await Promise.all([tools.stop(deadlineMs), web?.stop(deadlineMs)]);
  };
  try {
    if (sandboxed.length > 0) await tools.start();
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
    permission: config.agentPermission,
    registersServerTools: true,
    maxRounds: server.maxToolRounds ?? maxToolRounds,
    dispatch,
  };
  const loop = new AgentLoop({
    settings,
    inference,
    tools,
    web,
    sources,
    files,
    sessions,
    fetchFile,
    clock: realClock,
  });
  return { loop, stop };
}
