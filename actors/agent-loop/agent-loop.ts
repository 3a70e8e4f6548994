// Agent loop: runs the requests whose tools run on the server. A run is a sequence of rounds: the model generates, the server
// runs the tool calls and adds their results to the prompt, until the model responds without a call. The loop runs on the main
// thread and only forwards events; generations, tools and state have their own threads.
import type { GenerateRequest } from "../../engines/generation.ts";
import { orAborted } from "../../runtime/abort.ts";
import type { Clock } from "../../runtime/clock.ts";
import { deferred } from "../../runtime/deferred.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type {
  AgentEvent,
  AgentOptions,
  Agents,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalStatus,
  OfferedServerTool,
  Permission,
  ToolGroup,
} from "../api/agent/agents.ts";
import type { Files } from "../api/agent/files.ts";
import type { ServerTool, ToolSource } from "../api/agent/server-tools.ts";
import type { Sessions } from "../api/agent/sessions.ts";
import type { Skills } from "../api/agent/skills.ts";
import type { Tools } from "../api/agent/tools.ts";
import type { Web } from "../api/agent/web.ts";
import type { Inference } from "../api/inference.ts";
import { AgentRun, type RunServices } from "./agent-run.ts";
import { Approvals } from "./approvals.ts";
import type { FetchFile } from "./files/input-files.ts";
import { createDispatch, type DispatchSettings } from "./tools/dispatch.ts";

export interface AgentSettings {
  /** Groups of built-in tools that the settings enable. */
  readonly groups: readonly ToolGroup[];
  readonly permission: Permission;
  /** Milliseconds after which a call is denied if the user has not decided; null = no limit. */
  readonly approvalLimitMs: number | null;
  /** Maximum number of rounds of a run, if the request sets no limit. */
  readonly maxRounds: number;
  /** URL, timeout and signature key for calls of custom tools; null = clients run their own tools. */
  readonly dispatch: DispatchSettings | null;
  /** Whether calls of tools unknown to the server are left to the client; false: the model gets an error as the result of the call. */
  readonly hasClientTools: boolean;
  /** Whether a request without a list of MCP servers gets the tools of all configured servers. */
  readonly registersServerTools: boolean;
}

/** A run whose session is known. `run`: null while its session is being opened. */
interface RunningRun {
  readonly session: string;
  readonly ended: Promise<void>;
  readonly run: AgentRun | null;
}

export interface AgentLoopOptions {
  readonly settings: AgentSettings;
  readonly inference: Pick<Inference, "generate">;
  readonly tools: Tools;
  /** Web search and page reading; null = web search is not enabled. */
  readonly web: Web | null;
  /** Sources of the server tools. If two sources have a tool of the same name, the earlier source wins. */
  readonly sources: readonly ToolSource[];
  readonly files: Files;
  readonly sessions: Sessions;
  readonly skills: Skills;
  readonly fetchFile: FetchFile;
  readonly clock: Clock;
}

export class AgentLoop implements Agents {
  readonly groups: readonly ToolGroup[];
  readonly dispatches: boolean;
  readonly permission: Permission;
  readonly registersServerTools: boolean;
  readonly #settings: AgentSettings;
  readonly #approvals: Approvals;
  readonly #services: RunServices;
  /** Current runs whose sessions are known. The key is the controller that aborts the run. */
  readonly #running = new Map<AbortController, RunningRun>();

  constructor({ settings, clock, ...services }: AgentLoopOptions) {
    const dispatch = settings.dispatch === null ? null : createDispatch(settings.dispatch, clock);
    this.#settings = settings;
    this.groups = settings.groups;
    this.permission = settings.permission;
    this.registersServerTools = settings.registersServerTools;
    this.dispatches = dispatch !== null;
    this.#approvals = new Approvals(clock, settings.approvalLimitMs);
    const { hasClientTools } = settings;
    this.#services = { ...services, dispatch, hasClientTools, approvals: this.#approvals };
  }

  get serverTools(): readonly OfferedServerTool[] {
    const tools = this.#services.sources.flatMap((source) => source.tools());
    const isFirst = ({ spec }: ServerTool, i: number) =>
      tools.findIndex((other) => other.spec.name === spec.name) === i;
    return tools.filter(isFirst).map(({ spec, server = null }) => ({ spec, server }));
  }

  get toolServers(): Agents["toolServers"] {
    const servers = this.#services.sources.filter(({ connected }) => connected !== undefined);
    if (servers.length === 0) return null;
    const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
    return {
      tools: sum(servers.map((source) => source.tools().length)),
      connected: sum(servers.map(({ connected = 0 }) => connected)),
    };
  }

  decide(id: string, decision: ApprovalDecision): ApprovalStatus {
    return this.#approvals.decide(id, decision);
  }

  pending(sessionId: string): readonly ApprovalRequest[] {
    return this.#approvals.pending(sessionId);
  }

  async forget(sessionId: string): Promise<void> {
    const runs = [...this.#running].filter(([, { session }]) => session === sessionId);
    for (const [stop] of runs) stop.abort(sessionDeleted());
    // A state that is already being stored would otherwise be stored after the session is deleted.
    await Promise.all(runs.map(([, { run }]) => run?.saved));
    if (this.groups.length === 0) return;
    try {
      await this.#services.tools.closeSession({ session: sessionId });
    } catch (error) {
      // The tools process has ended, and with it all tool sessions, so there is nothing to close.
      if (toErrorRecord(error).code !== "peer_gone") throw error;
    }
  }

  async *run(
    request: GenerateRequest,
    agent: AgentOptions,
    signal: AbortSignal,
    onPrepared: () => void = () => {},
  ): AsyncGenerator<readonly AgentEvent[]> {
    // Aborted when the run ends for any reason. This also ends its generation, calls and approvals.
    const stop = new AbortController();
    const options = { request, agent, signal: AbortSignal.any([signal, stop.signal]) };
    const end = deferred();
    const ended = end.promise;
    const onSession = (session: string): void => void this.#running.set(stop, { session, ended, run: null });
    try {
      const permission = this.#permission(agent);
      const maxRounds = agent.maxRounds ?? this.#settings.maxRounds;
      const { sessionId } = agent;
      if (sessionId !== null) await this.#claim(sessionId, () => onSession(sessionId), options.signal);
      const isBusy = (session: string): boolean => this.#runOf(session) !== undefined;
      const run = await AgentRun.open(this.#services, { ...options, permission, maxRounds, isBusy, onSession });
      this.#running.set(stop, { session: run.session, ended, run });
      yield* run.events();
      stop.signal.throwIfAborted();
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(stop.signal.reason ?? error) }];
    } finally {
      stop.abort();
      this.#running.delete(stop);
      end.resolve();
      onPrepared();
    }
  }

  #runOf(session: string): RunningRun | undefined {
    return [...this.#running.values()].find((run) => run.session === session);
  }

  /**
   * Waits until no run uses the session, and calls `claim` in the same synchronous step. Waiting runs continue in the order in which
   * they came. They must not run together, because each stores the whole state of the session. Throws cancelled if the signal is aborted.
   */
  async #claim(session: string, claim: () => void, signal: AbortSignal): Promise<void> {
    for (let busy = this.#runOf(session); busy !== undefined; busy = this.#runOf(session)) {
      await orAborted(signal, busy.ended);
    }
    claim();
  }

  /**
   * Returns the stricter one of the server's and the request's permission. Throws invalid_value if it is "ask" and the response
   * is not streamed, because then the user cannot be asked.
   */
  #permission({ permission, isStreamed }: AgentOptions): Permission {
    const order: readonly Permission[] = ["auto", "ask", "deny"];
    const server = this.#settings.permission;
    const asked = permission ?? server;
    const strictest = order.indexOf(asked) > order.indexOf(server) ? asked : server;
    if (strictest !== "ask" || isStreamed) return strictest;
    throw new ServerError(
      "invalid_value",
      'agent_permission "ask" needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}',
      { param: "agent_permission" },
    );
  }
}

function sessionDeleted(): ServerError {
  return new ServerError("cancelled", "the session was deleted while the request ran");
}
