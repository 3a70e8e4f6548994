// Agent loop of a server: creates it from the settings, and starts the tools thread.
import { AgentLoop } from "../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../actors/agent-loop/files/fetch-file.ts";
import { maxToolRounds, type ToolGroup } from "../../actors/api/agent/agents.ts";
import type { Inference } from "../../actors/api/inference.ts";
import { ToolsClient } from "../../actors/front/tools-client.ts";
import type { ToolsPlaceInit } from "../../actors/messages.ts";
import { realClock } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import type { State } from "./state.ts";

export interface OpenAgents {
  readonly loop: AgentLoop;
  stop(deadlineMs: number): Promise<void>;
}

/**
 * Creates the agent loop. The tools thread starts if a tool is enabled; throws config_invalid if its sandbox cannot be used.
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
  const loop = new AgentLoop({ settings, inference, tools, files, sessions, fetchFile, clock: realClock });
  return { loop, stop: (deadlineMs) => tools.stop(deadlineMs) };
}

const mailboxLimit = 4096;

function toolsInit(config: Config, groups: readonly ToolGroup[], stagingFolder: string): ToolsPlaceInit {
  const { sandbox, codeExecPython, codeExecTimeout, codeExecWorkdir, shellPath, shellTimeout, shellWorkdir } = config;
  if (codeExecWorkdir !== null && shellWorkdir !== null && codeExecWorkdir !== shellWorkdir) {
    const message = `code_exec_workdir and shell_workdir expect the same folder, because code and shell of a session share one; got "${codeExecWorkdir}" and "${shellWorkdir}"`;
    throw new ServerError("config_invalid", message, { param: "shell_workdir" });
  }
  const runsCode = groups.includes("code_execution");
  // The default profile is `developer` if a tool is enabled. Without tools, the profile has no effect.
  const profile = sandbox.profile ?? (groups.length > 0 ? "developer" : "restricted");
  const isWindows = process.platform === "win32";
  return {
    sandbox: {
      mode: sandbox.mode,
      profile,
      network: sandbox.network ?? (profile === "developer" ? "full" : "loopback"),
      maxMemoryMb: sandbox.maxMemoryMb,
      maxCpuSecs: Math.max(
        sandbox.maxCpuSecs,
        runsCode ? codeExecTimeout : 0,
        groups.includes("shell") ? shellTimeout : 0,
      ),
      maxProcs: sandbox.maxProcs,
      maxDiskMb: sandbox.maxDiskMb,
    },
    python: runsCode ? (codeExecPython ?? (isWindows ? "python" : "python3")) : null,
    shellPath: shellPath ?? (isWindows ? "cmd" : "/bin/sh"),
    workFolder: codeExecWorkdir ?? shellWorkdir,
    codeTimeoutMs: codeExecTimeout * 1000,
    shellTimeoutMs: shellTimeout * 1000,
    stagingFolder,
    mailboxLimit,
  };
}
