// Agent run: processes one request whose tools run on the server, from its input files through all rounds to the last event.
import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import type { ChatMessage, GenerateRequest, PromptChanges, Usage } from "../../engines/generation.ts";
import { addedUsage } from "../../engines/usage.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { AgentEvent, AgentOptions, Permission } from "../api/agent/agents.ts";
import type { StoredFile } from "../api/agent/files.ts";
import type { ToolSource } from "../api/agent/server-tools.ts";
import type { Sessions } from "../api/agent/sessions.ts";
import type { Skills } from "../api/agent/skills.ts";
import type { Inference } from "../api/inference.ts";
import { failureText } from "../tools/failures.ts";
import type { Approvals } from "./approvals.ts";
import { type CallResult, CallRunner } from "./call-runner.ts";
import { type FetchFile, prepareFiles } from "./files/input-files.ts";
import { ProducedFiles } from "./files/produced-files.ts";
import { notesOnRequested } from "./files/requested-files.ts";
import { Outbox } from "./outbox.ts";
import { Round, type RoundCall } from "./round.ts";
import { mountSkills, skillsOfRun, unmountSkills } from "./run-skills.ts";
import { SessionLink } from "./session-link.ts";
import { Toolbox, type ToolServices } from "./tools/toolbox.ts";

export interface RunServices extends ToolServices {
  readonly approvals: Approvals;
  readonly inference: Pick<Inference, "generate">;
  readonly sessions: Sessions;
  readonly skills: Skills;
  readonly fetchFile: FetchFile;
  readonly sources: readonly ToolSource[];
  /** Whether calls of tools unknown to the server are left to the client (AgentSettings.hasClientTools). */
  readonly hasClientTools: boolean;
}

/** A request, with the permission and the limits of its run. */
export interface RunOptions {
  readonly request: GenerateRequest;
  readonly agent: AgentOptions;
  readonly permission: Permission;
  /** Maximum number of rounds whose tool calls are run. */
  readonly maxRounds: number;
  readonly signal: AbortSignal;
  /** Returns whether another run is using a session. */
  readonly isBusy: (sessionId: string) => boolean;
  /** Called with the id of the run's session as soon as the id is known. */
  readonly onSession: (sessionId: string) => void;
}

/** What the run does after a generation. */
interface Decision {
  /** Calls of server tools that run now. */
  readonly running: readonly RoundCall[];
  /** Result messages for the calls of server tools that do not run. */
  readonly notRun: readonly ChatMessage[];
  readonly next: "round" | "client" | "end";
  /** Whether the model called only server tools, and none of the calls runs: a limit of rounds or calls is reached, or `isCut`. */
  readonly isLimited: boolean;
  /** Whether the model's output was cut off, or the run has generated all tokens that the request allows. */
  readonly isCut: boolean;
}

/** Maximum number of calls of one round that are run. Further calls get a result that says that they were not run. */
const maxCallsPerRound = 64;

export class AgentRun {
  readonly #services: RunServices;
  readonly #options: RunOptions;
  readonly #session: SessionLink;
  readonly #id = randomBytes(8).toString("hex");
  readonly #answer = new Answered();
  readonly #produced: ProducedFiles;
  readonly #toolbox: Toolbox;
  /** Ids of all calls of the run. */
  readonly #usedIds = new Set<string>();

  private constructor(services: RunServices, options: RunOptions, session: SessionLink) {
    this.#services = services;
    this.#options = options;
    this.#session = session;
    this.#produced = new ProducedFiles(services.files, this.#id, session.files);
    const serverTools = services.sources.flatMap((source) => source.tools());
    this.#toolbox = new Toolbox(services, options.agent, serverTools);
  }

  /** Creates the run of a request and opens its session. */
  static async open(services: RunServices, options: RunOptions): Promise<AgentRun> {
    // Each call of a round adds a listener to the signal. Disables Node's warning about more than ten listeners.
    setMaxListeners(0, options.signal);
    const session = await SessionLink.open(services.sessions, options);
    return new AgentRun(services, options, session);
  }

  /** Id of the run's session. */
  get session(): string {
    return this.#session.id;
  }

  /** Resolves when no state of the session is being stored. Never rejects. */
  get saved(): Promise<void> {
    return this.#session.saved;
  }

  /**
   * Runs the rounds and yields their events. Throws a ServerError if the run cannot continue. If the request is cancelled, the
   * iteration ends without a final event.
   */
  async *events(): AsyncGenerator<readonly AgentEvent[]> {
    const { agent, signal } = this.#options;
    const notes = [
      ...(await this.#prepareSkills()),
      ...(await this.#prepareFiles()),
      ...notesOnRequested(agent.requestedFiles),
    ];
    if (signal.aborted) return;
    yield [{ type: "session", id: this.#session.id }];
    for (let number = 0; ; number++) {
      const round = new Round({
        isFirst: number === 0,
        earlierClientCalls: this.#answer.clientCalls,
        usedIds: this.#usedIds,
        runsHere: (name) => !this.#services.hasClientTools || this.#toolbox.find(name) !== null,
      });
      yield* this.#generate(round, notes, number);
      if (signal.aborted) return;
      if (round.error !== null) throw fromErrorRecord(round.error);
      if (round.finish === null || round.usage === null) throw endedEarly();
      const decision = this.#decide(round, number);
      this.#answer.add(round);
      this.#session.add(round.message);
      if (decision.running.length > 0) yield* this.#callAll(decision.running, number);
      if (signal.aborted) return;
      this.#answer.serverCalls += decision.running.length;
      this.#session.add(...decision.notRun);
      if (decision.next === "round") continue;
      yield await this.#end(round, decision, number);
      return;
    }
  }

  /** Passes the skills of the request to the tools process, in place of the skills of the session's earlier requests. */
  async #prepareSkills(): Promise<PromptChanges["notes"]> {
    const { agent } = this.#options;
    const { skills, tools } = this.#services;
    const { id: session, turn } = this.#session;
    const found = await skillsOfRun(agent, skills);
    if (found.length > 0) return await mountSkills(found, session, tools);
    if (agent.groups.length > 0 && turn > 0) await unmountSkills(session, tools);
    return [];
  }

  /** Stores the files of the request and copies them to the work folder. Returns the prompt notes that describe the files. */
  async #prepareFiles(): Promise<PromptChanges["notes"]> {
    const { files, fetchFile, tools } = this.#services;
    const { request, agent, signal } = this.#options;
    const { id: session, turn } = this.#session;
    const run = { client: request.client, session, turn, signal };
    const { notes, mounts, ids } = await prepareFiles(agent.inputFiles, files, fetchFile, run);
    this.#session.files.push(...ids);
    if (agent.groups.length > 0 && mounts.length > 0) await tools.mount({ session, files: mounts });
    return notes;
  }

  async *#generate(round: Round, notes: PromptChanges["notes"], number: number): AsyncGenerator<readonly AgentEvent[]> {
    const { request, signal } = this.#options;
    const changes = this.#session.changes(notes, number === 0);
    const maxTokens = this.#tokensLeft();
    const minTokens = Math.min(request.minTokens, maxTokens ?? request.minTokens);
    const asked = { ...request, prompt: this.#session.prompt, changes, maxTokens, minTokens };
    for await (const batch of this.#services.inference.generate(asked, signal)) {
      const events = round.take(batch);
      if (events.length > 0) yield events;
      if (round.error !== null) return;
    }
  }

  /** Returns the number of tokens that the run may still generate; null = the request has no token limit. */
  #tokensLeft(): number | null {
    const { maxTokens } = this.#options.request;
    return maxTokens === null ? null : maxTokens - (this.#answer.usage?.completionTokens ?? 0);
  }

  #decide(round: Round, number: number): Decision {
    const { agent, maxRounds } = this.#options;
    const own = round.calls.filter(({ runsHere }) => runsHere);
    const tokensLeft = this.#tokensLeft();
    const isCut = round.isCut || (tokensLeft !== null && tokensLeft <= (round.usage?.completionTokens ?? 0));
    const hasNoRounds = number >= maxRounds;
    const left = (agent.maxCalls ?? Number.POSITIVE_INFINITY) - this.#answer.serverCalls;
    const count = isCut || hasNoRounds ? 0 : Math.min(maxCallsPerRound, left);
    const running = own.slice(0, count);
    const content = failureText(`not run: ${isCut ? "the answer was cut off" : limitReached(hasNoRounds, left)}`);
    const isHandedBack = round.calls.length > own.length;
    return {
      running,
      notRun: own.slice(running.length).map((call) => resultMessage({ call, content })),
      next: isHandedBack ? "client" : running.length > 0 ? "round" : "end",
      isLimited: !isHandedBack && own.length > 0 && running.length === 0,
      isCut,
    };
  }

  /** Runs the calls of a round and adds their results to the session. Yields the events of the calls. */
  async *#callAll(calls: readonly RoundCall[], number: number): AsyncGenerator<readonly AgentEvent[]> {
    const { request, agent, permission, signal } = this.#options;
    const session = this.#session;
    const outbox = new Outbox<AgentEvent>();
    const known: ChatMessage[] = [];
    const context = {
      run: this.#id,
      session: session.id,
      client: request.client,
      turn: session.turn,
      permission,
      canAsk: agent.isStreamed && !agent.isPlain,
      signal,
      emit: (event: AgentEvent) => outbox.put(event),
      approvesAll: session.approvesAll,
      onApprovesAll: async () => await session.approveAll(known),
      produced: this.#produced,
      toolbox: this.#toolbox,
      onResult: async (result: CallResult) => {
        known.push(resultMessage(result));
        session.addImages(result.images);
        await session.save(known, null);
      },
    };
    const running = new CallRunner(this.#services.approvals, context, number).runAll(calls);
    yield* outbox.until(running);
    session.add(...(await running).map(resultMessage));
  }

  /**
   * Stores the session and returns the last events. Placeholders for requested files that no call has created are stored only if
   * the run is complete, not if the client must still run calls.
   */
  async #end(round: Round, { next, isLimited, isCut }: Decision, number: number): Promise<readonly AgentEvent[]> {
    const { finish, usage } = round;
    if (finish === null || usage === null) throw endedEarly();
    const missing = next === "end" ? await this.#storeMissing(number) : [];
    // The session of a plain request (one without agent features) is not stored if the server ran no call: nothing in it is
    // needed to continue, and it would displace other sessions.
    const isWorthKeeping = !this.#options.agent.isPlain || this.#answer.serverCalls > 0;
    if (isWorthKeeping) await this.#session.save([], this.#answer.message);
    return [
      ...missing.map((file) => ({ type: "file", file, inline: null }) as const),
      ...(isLimited && !isCut ? [{ type: "rounds_reached" } as const] : []),
      { ...finish, reason: isLimited ? "length" : finish.reason },
      { type: "done", usage: this.#answer.usage ?? usage },
    ];
  }

  async #storeMissing(number: number): Promise<readonly StoredFile[]> {
    const { request, agent } = this.#options;
    const { id: session, turn } = this.#session;
    return await this.#produced.storeMissing(agent.requestedFiles, number, { session, turn, client: request.client });
  }
}

/** Output of a run that the client has received: the texts and client calls of all rounds, joined into one message. */
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
