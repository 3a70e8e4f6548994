// Sandboxed tools: builds the options of the tools process from the settings.
import type { ToolGroup } from "../../../actors/api/agent/agents.ts";
import type { ToolsPlaceInit } from "../../../actors/messages.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { userFolder } from "../../agent/work-folder.ts";
import type { Config } from "../../config/config.ts";

const mailboxLimit = 4096;

/** Returns the options of the tools process. Throws config_invalid if settings contradict each other. */
export function toolsInit(config: Config, groups: readonly ToolGroup[], stagingFolder: string): ToolsPlaceInit {
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
    userFolder: userFolder(config),
    codeTimeoutMs: codeExecTimeout * 1000,
    shellTimeoutMs: shellTimeout * 1000,
    stagingFolder,
    mailboxLimit,
  };
}
