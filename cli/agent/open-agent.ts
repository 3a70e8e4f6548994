// Opens the agent of `troupe agent` and `troupe run --agent`: its tools, session and view.
import { join, resolve } from "node:path";
import { maxToolRounds } from "../../actors/api/agent/agents.ts";
import { skillLimits } from "../../actors/api/agent/skills.ts";
import type { Inference } from "../../actors/api/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { openAgents } from "../assembly/agents/agents.ts";
import { placeStopMs } from "../assembly/service-options.ts";
import { defaultFolder, openState } from "../assembly/state.ts";
import type { Config } from "../config/config.ts";
import type { Questions } from "../run/input/questions.ts";
import type { Output } from "../run/output.ts";
import { Approver } from "./approver.ts";
import { type ResumedConversation, resumedConversation } from "./session/resumed-turns.ts";
import { SavedSessions } from "./session/saved-sessions.ts";
import { SessionFiles } from "./session/session-files.ts";
import { agentSystemPrompt } from "./system-prompt.ts";
import { TerminalAgent } from "./terminal-agent.ts";
import { usableSkills } from "./usable-skills.ts";
import { FolderChanges } from "./view/folder-changes.ts";
import { JsonView } from "./view/json-view.ts";
import { TerminalView } from "./view/terminal-view.ts";
import { userFolder } from "./work-folder.ts";

/** Name of the client that owns the sessions. Requests made by chatRequest have the same client. */
const client = "run";

export interface AgentTerminal {
  readonly answers: Output;
  readonly notes: Output;
  /** Whether a user at the terminal can be asked. */
  readonly canAsk: boolean;
  /** Returns the object that asks the user questions. Called only during a run, and only if `canAsk` is true. */
  readonly questions: () => Questions;
}

export interface OpenAgent {
  readonly agent: TerminalAgent;
  /** Work folder of the tools. */
  readonly folder: string;
  /** System prompt and turns with which the conversation begins. */
  readonly conversation: ResumedConversation;
  /** Returns how the user can continue the session of the last run; null if there is no session, or if it is not saved. */
  continuation(): string | null;
  stop(): Promise<void>;
}

/** Returns whether the settings give the model tools. */
export function usesTools({ agent, enableCodeExecution, enableShell, enableSearch }: Config): boolean {
  return agent || enableCodeExecution || enableShell || enableSearch;
}

/** Checks the settings of the agent before a model is loaded. Throws config_invalid. */
export function checkAgent(config: Config): void {
  userFolder(config);
  const asks = !config.run.yes && config.agentPermission === "ask";
  const hasScreen = process.stdout.isTTY === true || process.stderr.isTTY === true;
  if (!asks || (process.stdin.isTTY === true && hasScreen)) return;
  throw new ServerError(
    "config_invalid",
    "calls of tools are asked for on a terminal, and this command has none: --yes runs them without asking, --agent-permission deny refuses them",
    { param: "agent_permission" },
  );
}

export async function openAgent(
  config: Config,
  inference: Pick<Inference, "generate" | "embed">,
  terminal: AgentTerminal,
  log: Logger,
): Promise<OpenAgent> {
  const folder = userFolder(config) ?? process.cwd();
  const saved = new SessionFiles(sessionFolder(config.troupe.stateDir));
  // The agent loop keeps its files and sessions in memory, so they are lost when this command ends. What remains are the session
  // files, which `SavedSessions` writes.
  const state = await openState({ ...config, troupe: { ...config.troupe, stateDir: "none" } }, log);
  const stopState = () => state.stop(placeStopMs);
  try {
    const sessions = new SavedSessions({ inner: state.sessions, files: state.files, saved, workFolder: folder, log });
    const wanted = await continued(config, saved, folder);
    const restored = wanted === null ? null : await sessions.restore(wanted, client);
    const { loop, stop } = await openAgents(config, { ...state, sessions }, inference, [], log);
    const { leftOut } = usableSkills(await state.skills.list());
    if (leftOut.length > 0) {
      log.warn(
        { skills: leftOut },
        `skills left out: a run has at most ${skillLimits.maxRunSkills}, with different names`,
      );
    }
    const approver = new Approver({ ...terminal, agents: () => loop });
    const view = config.run.json
      ? new JsonView({ ...terminal, approver })
      : new TerminalView({
          ...terminal,
          approver,
          changes: new FolderChanges(folder),
          maxRounds: config.server.maxToolRounds ?? maxToolRounds,
        });
    const begun = { system: config.run.system ?? agentSystemPrompt(folder, loop.groups, new Date()), turns: [] };
    const agent = new TerminalAgent({
      agents: loop,
      skills: state.skills,
      view,
      canAsk: terminal.canAsk,
      sessionId: restored?.id ?? null,
    });
    return {
      agent,
      folder,
      conversation: restored === null ? begun : resumedConversation(restored),
      continuation: () =>
        saved.isKept && agent.sessionId !== null ? `session ${agent.sessionId}; continue it with --continue` : null,
      stop: async () => {
        await stop(placeStopMs);
        await stopState();
      },
    };
  } catch (error) {
    await stopState();
    throw error;
  }
}

/** Returns the session to continue; null for a new session. */
async function continued({ run }: Config, saved: SessionFiles, folder: string) {
  if (run.session !== null) return await saved.named(run.session, folder);
  return run.continueLast ? await saved.last(folder) : null;
}

/** Returns the folder of the session files; null if the settings say that no state is kept. */
function sessionFolder(stateDir: string | null): string | null {
  if (stateDir === "none") return null;
  return join(stateDir === null ? defaultFolder(process.env) : resolve(stateDir), "agent-sessions");
}
