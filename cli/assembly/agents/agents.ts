// Agent loop of a server: creates it from the settings, and starts the tools thread.
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

export interface OpenAgents {
  readonly loop: AgentLoop;
  stop(deadlineMs: number): Promise<void>;
}

/**
 * Creates the agent loop. The tools thread starts if a tool is enabled; throws config_invalid if its sandbox cannot be used.
 */
export async function openAgents(
  config: Config,
  { files, sessions, skills }: Pick<State, "files" | "sessions" | "skills">,
  inference: Pick<Inference, "generate">,
  log: Logger,
): Promise<OpenAgents> {
  const { server, troupe } = config;
  const groups: readonly ToolGroup[] = [
    ...(config.agent || config.enableCodeExecution ? (["code_execution"] as const) : []),
    ...(config.agent || config.enableShell ? (["shell"] as const) : []),
  ];
  const tools = new ToolsClient({ init: toolsInit(config, groups, files.stagingFolder), log });
  if (groups.length > 0) await tools.start();
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
  };
  const loop = new AgentLoop({
    settings,
    inference,
    tools,
    web: null,
    sources: [],
    files,
    sessions,
    skills,
    fetchFile,
    clock: realClock,
  });
  return { loop, stop: (deadlineMs) => tools.stop(deadlineMs) };
}
