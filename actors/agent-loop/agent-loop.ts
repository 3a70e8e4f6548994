// Agent loop: runs requests whose tools the server runs. A run is a sequence of rounds: the model generates, the server runs the
// calls and adds their results to the prompt, until the model answers without a call. The loop runs on the main thread and only
// passes events on; generations, tools and state have their own threads.
import { randomBytes } from "node:crypto";
import type { ChatMessage, FinishReason, GenerateRequest, Usage } from "../../engines/generation.ts";
import { addedUsage } from "../../engines/usage.ts";
import type { Clock } from "../../runtime/clock.ts";
import { fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type {
  AgentEvent,
  AgentOptions,
  Agents,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalStatus,
  Permission,
  ToolGroup,
} from "../api/agent/agents.ts";
import type { Files } from "../api/agent/files.ts";
import type { Sessions } from "../api/agent/sessions.ts";
import type { Tools } from "../api/agent/tools.ts";
import type { Inference } from "../api/inference.ts";
import { builtInNamed } from "../tools/schemas.ts";
import { Approvals } from "./approvals.ts";
import { type CallResult, CallRunner, type RunContext } from "./call-runner.ts";
import { createDispatch, type Dispatch, type DispatchSettings } from "./dispatch.ts";
import { type FetchFile, prepareFiles } from "./input-files.ts";
import { Outbox } from "./outbox.ts";
import { Round, type RoundCall } from "./round.ts";
import { SessionLink } from "./session-link.ts";

export interface AgentSettings {
  /** Features that are enabled. */
  readonly groups: readonly ToolGroup[];
  readonly permission: Permission;
  /** Limit of rounds if the request sets none. */
  readonly maxRounds: number;
  /** Where custom tools are sent; null: clients run their own tools. */
  readonly dispatch: DispatchSettings | null;
}

export interface AgentLoopOptions {
  readonly settings: AgentSettings;
  readonly inference: Pick<Inference, "generate">;
  readonly tools: Tools;
  readonly files: Files;
  readonly sessions: Sessions;
  readonly fetchFile: FetchFile;
  readonly clock: Clock;
}

/** Maximum number of calls of one round that run. The results of further calls say that they were not run. */
const maxCallsPerRound = 64;

export class AgentLoop implements Agents {
  readonly groups: readonly ToolGroup[];
  readonly dispatches: boolean;
  readonly #options: AgentLoopOptions;
  readonly #approvals: Approvals;
  readonly #dispatch: Dispatch | null;

  constructor(options: AgentLoopOptions) {
    const { settings, clock } = options;
    this.#options = options;
    this.groups = settings.groups;
    this.dispatches = settings.dispatch !== null;
    this.#approvals = new Approvals(clock);
    this.#dispatch = settings.dispatch === null ? null : createDispatch(settings.dispatch, clock);
  }

  decide(id: string, decision: ApprovalDecision): ApprovalStatus {
    return this.#approvals.decide(id, decision);
  }

  pending(sessionId: string): readonly ApprovalRequest[] {
    return this.#approvals.pending(sessionId);
  }

  async forget(sessionId: string): Promise<void> {
    if (this.groups.length > 0) await this.#options.tools.closeSession({ session: sessionId });
  }

  async *run(
    request: GenerateRequest,
    agent: AgentOptions,
    signal: AbortSignal,
    onPrepared: () => void = () => {},
  ): AsyncGenerator<readonly AgentEvent[]> {
    try {
      yield* this.#rounds(request, agent, signal);
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      onPrepared();
    }
  }

  async *#rounds(
    request: GenerateRequest,
    agent: AgentOptions,
    signal: AbortSignal,
  ): AsyncGenerator<readonly AgentEvent[]> {
    const { settings, inference, files, sessions, fetchFile, tools } = this.#options;
    const permission = this.#permission(agent);
    const maxRounds = agent.maxRounds ?? settings.maxRounds;
    const session = await SessionLink.open(sessions, request, agent);
    const { client } = request;
    const inputRun = { client, session: session.id, turn: session.turn, signal };
    const { notes, mounts, ids } = await prepareFiles(agent.inputFiles, files, fetchFile, inputRun);
    session.files.push(...ids);
    if (agent.groups.length > 0 && mounts.length > 0) await tools.mount({ session: session.id, files: mounts });
    if (signal.aborted) return;
    yield [{ type: "session", id: session.id }];

    const answer = new Answered();
    const run = randomBytes(8).toString("hex");
    for (let number = 0; ; number++) {
      const round = new Round({
        isFirst: number === 0,
        firstClientCall: answer.clientCalls,
        runsHere: (name) => this.#runsHere(name),
      });
      const changes = session.changes(notes, number === 0);
      const batches = inference.generate({ ...request, prompt: session.prompt, changes }, signal);
      for await (const batch of batches) {
        const events = round.take(batch);
        if (events.length > 0) yield events;
        if (round.error !== null) break;
      }
      if (signal.aborted) return;
      if (round.error !== null) throw fromErrorRecord(round.error);
      answer.add(round);
      const called = round.calls.filter(({ runsHere }) => runsHere);
      const { finish } = round;
      if (finish === null || round.usage === null) throw endedEarly();
      const isCut = finish.reason === "length" || finish.reason === "cancelled";
      const callsLeft = Math.min(maxCallsPerRound, (agent.maxCalls ?? Number.POSITIVE_INFINITY) - answer.serverCalls);
      const running = isCut || number >= maxRounds ? [] : called.slice(0, callsLeft);
      const isLast = running.length === 0;
      session.add(round.message);
      if (!isLast) {
        yield* this.#callAll(running, session, { run, client, permission, agent, signal, number });
        if (signal.aborted) return;
      }
      answer.serverCalls += running.length;
      const content = notRun(isCut ? "the answer was cut off" : limitReached(number >= maxRounds, callsLeft));
      session.add(...called.slice(running.length).map((call) => resultMessage({ call, content })));
      if (isLast || round.calls.length > called.length) {
        const reason: FinishReason = isLast && called.length > 0 ? "length" : finish.reason;
        await session.save([], answer.message);
        yield [
          ...(isLast && called.length > 0 && !isCut ? [{ type: "rounds_reached" } as const] : []),
          { ...finish, reason },
          { type: "done", usage: answer.usage ?? round.usage },
        ];
        return;
      }
    }
  }

  /** Runs the calls of a round and adds their results to the session. Yields the events of the calls. */
  async *#callAll(
    calls: readonly RoundCall[],
    session: SessionLink,
    { run, client, permission, agent, signal, number }: CallRound,
  ): AsyncGenerator<readonly AgentEvent[]> {
    const outbox = new Outbox<AgentEvent>();
    const known: ChatMessage[] = [];
    const context: RunContext = {
      run,
      session: session.id,
      client,
      turn: session.turn,
      permission,
      requestedFiles: agent.requestedFiles,
      signal,
      emit: (event) => outbox.put(event),
      approvals: session.approvals,
      files: session.files,
      onResult: async (result) => {
        known.push(resultMessage(result));
        session.addImages(result.images);
        await session.save(known, null);
      },
    };
    const services = {
      tools: this.#options.tools,
      files: this.#options.files,
      approvals: this.#approvals,
      dispatch: this.#dispatch,
    };
    const running = new CallRunner(services, context, number).runAll(calls);
    yield* outbox.until(running);
    session.add(...(await running).map(resultMessage));
  }

  #runsHere(name: string): boolean {
    return builtInNamed(name) !== undefined || this.#dispatch !== null;
  }

  /** Returns the stricter of the server's and the request's permission. Throws invalid_value if nobody could be asked. */
  #permission({ permission, isStreamed }: AgentOptions): Permission {
    const order: readonly Permission[] = ["auto", "ask", "deny"];
    const server = this.#options.settings.permission;
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

interface CallRound {
  readonly run: string;
  readonly client: string;
  readonly permission: Permission;
  readonly agent: AgentOptions;
  readonly signal: AbortSignal;
  readonly number: number;
}

/** What the client has got of a run: the texts and client calls of all rounds, as one message. */
class Answered {
  #content = "";
  readonly #calls: RoundCall[] = [];
  #usage: Usage | null = null;
  clientCalls = 0;
  /** Number of calls that the server has run. */
  serverCalls = 0;

  add(round: Round): void {
    this.#content += round.text;
    this.#calls.push(...round.calls.filter(({ runsHere }) => !runsHere));
    this.clientCalls = round.clientCalls;
    if (round.usage !== null) this.#usage = this.#usage === null ? round.usage : addedUsage(this.#usage, round.usage);
  }

  get usage(): Usage | null {
    return this.#usage;
  }

  get message(): ChatMessage {
    const toolCalls = this.#calls.map(({ id, name, arguments: args }) => ({ id, name, arguments: args }));
    return { role: "assistant", content: this.#content, ...(toolCalls.length === 0 ? {} : { toolCalls }) };
  }
}

/** Result of a call that is not run. */
function notRun(why: string): string {
  return JSON.stringify({ status: "error", error: `not run: ${why}` });
}

function limitReached(hasNoRounds: boolean, callsLeft: number): string {
  if (hasNoRounds) return "the limit of tool rounds is reached (max_tool_rounds)";
  if (callsLeft < maxCallsPerRound) return "the limit of tool calls is reached (max_tool_calls)";
  return `at most ${maxCallsPerRound} calls of one turn run; make fewer`;
}

function resultMessage({ call, content }: Pick<CallResult, "call" | "content">): ChatMessage {
  return { role: "tool", content, name: call.name, toolCallId: call.id };
}

function endedEarly(): ServerError {
  return new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}
