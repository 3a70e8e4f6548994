// Terminal agent: runs the agent loop for one conversation on the command line. Its `generate` has the same signature as
// Inference.generate, so the code that shows answers can use the agent like a model. The view shows tool calls and asks for
// approvals.
import { type AgentEvent, type AgentOptions, type Agents, noEarlierCalls } from "../../actors/api/agent/agents.ts";
import { messageDigest } from "../../actors/api/agent/message-digest.ts";
import type { Skills } from "../../actors/api/agent/skills.ts";
import { defaultWebOptions } from "../../actors/api/agent/web.ts";
import type { Inference } from "../../actors/api/inference.ts";
import { toolsOf } from "../../actors/tools/schemas.ts";
import type { ChatMessage, GenerateEvent, GenerateRequest, ToolUse } from "../../engines/generation.ts";
import { interruptedAnswer } from "./session/resumed-turns.ts";
import { usableSkills } from "./usable-skills.ts";

/** Receives all events of a run, one at a time. The next event is delivered when the view has handled the previous one. */
export interface RunView {
  /** Called before a run. */
  begin(): Promise<void>;
  event(event: AgentEvent, run: RunControl): Promise<void>;
}

export interface RunControl {
  /** Aborted when the run must end. */
  readonly signal: AbortSignal;
  /** Ends the run. */
  interrupt(): void;
}

export interface TerminalAgentOptions {
  readonly agents: Agents;
  /** All stored skills. usableSkills chooses the skills of a run from them. */
  readonly skills: Pick<Skills, "list">;
  readonly view: RunView;
  /** Whether the view can ask the user. */
  readonly canAsk: boolean;
  /** Id of the session that the conversation continues; null for a new session. */
  readonly sessionId: string | null;
}

export class TerminalAgent {
  readonly #agents: Agents;
  readonly #skills: Pick<Skills, "list">;
  readonly #view: RunView;
  readonly #canAsk: boolean;
  #sessionId: string | null;
  /** Text of the answer since the last tool result. The text before that result is already in the session. */
  #unsaved = "";
  #isLimited = false;

  constructor({ agents, skills, view, canAsk, sessionId }: TerminalAgentOptions) {
    this.#agents = agents;
    this.#skills = skills;
    this.#view = view;
    this.#canAsk = canAsk;
    this.#sessionId = sessionId;
  }

  /** Id of the session of the last run; null if no session has begun. */
  get sessionId(): string | null {
    return this.#sessionId;
  }

  /** Whether the last run ended because it reached the limit of tool rounds. */
  get isLimited(): boolean {
    return this.#isLimited;
  }

  /** Returns the text of an interrupted answer as it is kept in the conversation. */
  cutAnswer(): string {
    return interruptedAnswer(this.#unsaved);
  }

  /**
   * Returns an object with the interface of `inference`: `models` returns the models of `inference`, and `generate` runs the
   * agent loop, with tools.
   */
  over(inference: Pick<Inference, "models">): Pick<Inference, "generate" | "models"> {
    return { models: () => inference.models(), generate: (request, signal) => this.generate(request, signal) };
  }

  /** Generates an answer. Yields the same kinds of events as Inference.generate. */
  async *generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<readonly GenerateEvent[]> {
    for await (const event of this.events(request, signal)) {
      if (isRunEvent(event)) continue;
      // If the limit of rounds is reached, the view has reported it. The answer itself is complete, so its finish reason is
      // "stop".
      yield [event.type === "finish" && this.#isLimited ? { ...event, reason: "stop" } : event];
    }
  }

  /** Runs a request. Yields each event after the view has handled it. */
  async *events(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<AgentEvent> {
    const messages = request.prompt.kind === "chat" ? request.prompt.messages : [];
    await this.#beginSession(messages);
    await this.#view.begin();
    const interrupted = new AbortController();
    const run = { signal: AbortSignal.any([signal, interrupted.signal]), interrupt: () => interrupted.abort() };
    const asked = { ...request, tools: toolUse(this.#agents) };
    const options = await this.#options(messages);
    for await (const batch of this.#agents.run(asked, options, run.signal)) {
      for (const event of batch) {
        this.#note(event);
        await this.#view.event(event, run);
        yield event;
      }
    }
  }

  /** Starts a new session if the conversation has no answer yet, for example after /clear. */
  async #beginSession(messages: readonly ChatMessage[]): Promise<void> {
    this.#unsaved = "";
    this.#isLimited = false;
    if (this.#sessionId === null || messages.some(({ role }) => role === "assistant")) return;
    await this.#agents.forget(this.#sessionId);
    this.#sessionId = null;
  }

  #note(event: AgentEvent): void {
    if (event.type === "session") this.#sessionId = event.id;
    else if (event.type === "text") this.#unsaved += event.text;
    else if (event.type === "rounds_reached") this.#isLimited = true;
    else if (event.type === "tool_progress" && event.phase === "complete") this.#unsaved = "";
  }

  async #options(messages: readonly ChatMessage[]): Promise<AgentOptions> {
    const { groups, serverTools } = this.#agents;
    // Skills need the shell tool, with which the model reads and runs them.
    const skills = groups.includes("shell") ? usableSkills(await this.#skills.list()).used : [];
    return {
      groups,
      serverTools: serverTools.map(({ spec }) => spec.name),
      web: defaultWebOptions,
      maxUses: {},
      skills: skills.map(({ id }) => ({ id, version: null })),
      isPlain: false,
      permission: null,
      maxRounds: null,
      maxCalls: null,
      sessionId: this.#sessionId,
      earlierCalls: noEarlierCalls,
      continuesAnswer: false,
      digests: messages.map(messageDigest),
      requestedFiles: [],
      inputFiles: [],
      isStreamed: this.#canAsk,
    };
  }
}

/**
 * Kinds of tools that pass files to the client of a server. They are left out, because the user of a terminal finds the files
 * in the work folder.
 */
const forClients = ["surface_outputs", "files"];

function toolUse({ groups, serverTools }: Agents): ToolUse | null {
  const builtIn = toolsOf(groups).filter(({ runsIn }) => !forClients.includes(runsIn));
  const specs = [...builtIn, ...serverTools].map(({ spec }) => spec);
  return specs.length === 0 ? null : { specs, required: false, parallel: true };
}

function isRunEvent(event: AgentEvent): event is Exclude<AgentEvent, GenerateEvent> {
  return ["session", "tool_progress", "approval", "rounds_reached", "file"].includes(event.type);
}
