// Rig for tests of the agent loop over HTTP. Only the model is scripted. The agent loop, the tools process with its sandbox, the
// state thread and the HTTP server are real.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentLoop, type AgentSettings } from "../../../actors/agent-loop/agent-loop.ts";
import { approvalTimeoutMs } from "../../../actors/agent-loop/approvals.ts";
import { fetchFile } from "../../../actors/agent-loop/files/fetch-file.ts";
import type { ToolSource } from "../../../actors/api/agent/server-tools.ts";
import type { Web } from "../../../actors/api/agent/web.ts";
import { changedContent, openContent } from "../../../actors/api/sealed-content.ts";
import type { StateClient } from "../../../actors/front/state-client.ts";

import type { ToolsPlaceInit } from "../../../actors/messages.ts";
import type { ChatMessage, GenerateEvent, GenerateRequest, ToolSpec } from "../../../engines/generation.ts";

import { realClock } from "../../../runtime/clock.ts";
import { startAgentPlaces } from "../../fixtures/actors/agent-places.ts";
import {
  begin,
  done,
  type FakeInference,
  finish,
  reasoning,
  text,
  toolCall,
} from "../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../fixtures/http-server.ts";

/** Output of the model in one round: text, tool calls or both, preceded by its reasoning if any; or a list of events. */
export type Turn =
  | string
  | {
      readonly reasoning?: string;
      readonly text?: string;
      readonly calls: readonly (readonly [name: string, args: unknown])[];
    }
  | { readonly events: readonly GenerateEvent[] };

export interface AgentRig {
  readonly url: string;
  readonly server: TestServer;
  readonly inference: FakeInference;
  readonly state: StateClient;
  /** Sets the model's output in the following rounds. Later rounds get the result of `write`, or "end" by default. */
  script(...turns: readonly Turn[]): void;
  /** Chats that the model has received since the last call of `script`, one for each round. */
  readonly seen: () => readonly (readonly ChatMessage[])[];
  stop(): Promise<void>;
}

export interface RigOptions {
  readonly settings?: Partial<AgentSettings>;
  readonly web?: Web;
  readonly sources?: readonly ToolSource[];
  /** State folder; null = the state is kept in memory. */
  readonly stateFolder?: string | null;
  /** Folder of skills (skills_dir). */
  readonly skillsFolder?: string;
  /** Changes to the settings of the tools process. */
  readonly tools?: Partial<ToolsPlaceInit>;
  /** Parent of the working directories; default: a folder that `stop` removes. */
  readonly workFolder?: string;
  /** Returns the model's output for rounds without a script. Arguments: the chat, and the tools that the model may call. */
  readonly write?: (chat: readonly ChatMessage[], tools: readonly ToolSpec[]) => Turn;
}

export async function startAgents(options: RigOptions = {}): Promise<AgentRig> {
  const {
    stateFolder = null,
    workFolder = mkdtempSync(join(tmpdir(), "troupe-agents-")),
    write = () => "end",
  } = options;
  const { skillsFolder = null } = options;
  const { state, tools, stop } = await startAgentPlaces(workFolder, stateFolder, options.tools, skillsFolder);
  const settings = {
    groups: ["code_execution", "shell"],
    permission: "auto",
    hasClientTools: true,
    registersServerTools: true,
    maxRounds: 256,
    approvalLimitMs: approvalTimeoutMs,
    dispatch: null,
    ...options.settings,
  } as const;
  let turns: readonly Turn[] = [];
  const seen: (readonly ChatMessage[])[] = [];
  const { files, sessions, skills } = state;
  const server = await startServer("node", {
    script: (request) => {
      const { messages, tools } = chatOf(request);
      seen.push(messages);
      const [turn = write(messages, tools), ...rest] = turns;
      turns = rest;
      return [eventsOf(turn, seen.length)];
    },
    parts: { files, sessions, skills },
    makeAgents: (inference) =>
      new AgentLoop({
        settings,
        inference,
        tools,
        web: options.web ?? null,
        sources: options.sources ?? [],
        files,
        sessions,
        skills,
        fetchFile,
        clock: realClock,
      }),
  });
  return {
    url: server.url,
    server,
    inference: server.inference,
    state,
    script(...next) {
      turns = next;
      seen.length = 0;
    },
    seen: () => seen,
    async stop() {
      await server.stop();
      await stop();
      if (options.workFolder === undefined) rmSync(workFolder, { recursive: true, force: true });
    },
  };
}

/** Returns the events of one round. */
export function eventsOf(turn: Turn, round: number): readonly GenerateEvent[] {
  if (typeof turn === "string") return [begin(), text(turn), finish(), done];
  if ("events" in turn) return turn.events;
  const calls = turn.calls.flatMap(([name, args], i) =>
    toolCall(name, [typeof args === "string" ? args : JSON.stringify(args)], i).map((event) =>
      event.type === "tool_call" ? { ...event, id: `call_${round}_${i}` } : event,
    ),
  );
  const thought = turn.reasoning === undefined ? [] : [reasoning(turn.reasoning)];
  const said = turn.text === undefined ? [] : [text(turn.text)];
  return [begin(), ...thought, ...said, ...calls, finish("tool_calls"), done];
}

/** Returns the chat and the tools as the text worker would see them. */
export function chatOf({ prompt, grammar, tools, changes }: GenerateRequest): {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ToolSpec[];
} {
  const content = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
  const whole = changes === undefined ? content : changedContent(content, changes);
  const messages = whole.prompt.kind === "chat" ? whole.prompt.messages : [];
  return { messages, tools: whole.tools?.specs ?? [] };
}
