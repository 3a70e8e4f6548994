// Rig for tests of the agent loop over HTTP: a scripted model, and everything else real: the loop, the tools thread with its
// sandbox, the state thread, and an HTTP server.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentLoop, type AgentSettings } from "../../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../../actors/agent-loop/fetch-file.ts";
import { changedContent, openContent } from "../../../actors/api/sealed-content.ts";
import type { StateClient } from "../../../actors/front/state-client.ts";
import type { ChatMessage, GenerateEvent, GenerateRequest } from "../../../engines/generation.ts";
import { realClock } from "../../../runtime/clock.ts";
import { startAgentPlaces } from "../../fixtures/actors/agent-places.ts";
import { begin, done, type FakeInference, finish, text, toolCall } from "../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../fixtures/http-server.ts";

/** What the model writes in one round: text, calls of tools, or both; or events. */
export type Turn =
  | string
  | { readonly text?: string; readonly calls: readonly (readonly [name: string, args: unknown])[] }
  | { readonly events: readonly GenerateEvent[] };

export interface AgentRig {
  readonly url: string;
  readonly server: TestServer;
  readonly inference: FakeInference;
  readonly state: StateClient;
  /** Sets what the model writes in the following rounds. After them it writes what `write` returns, or "end". */
  script(...turns: readonly Turn[]): void;
  /** Chats that the model saw, one a round, since the last script. */
  readonly seen: () => readonly (readonly ChatMessage[])[];
  stop(): Promise<void>;
}

export interface RigOptions {
  readonly settings?: Partial<AgentSettings>;
  /** null: the state is in memory. */
  readonly stateFolder?: string | null;
  /** Parent of the working directories; default: a folder that `stop` removes. */
  readonly workFolder?: string;
  /** Returns what the model writes after a chat, if there is no script. */
  readonly write?: (chat: readonly ChatMessage[]) => Turn;
}

export async function startAgents(options: RigOptions = {}): Promise<AgentRig> {
  const {
    stateFolder = null,
    workFolder = mkdtempSync(join(tmpdir(), "troupe-agents-")),
    write = () => "end",
  } = options;
  const { state, tools, stop } = await startAgentPlaces(workFolder, stateFolder);
  const settings = {
    groups: ["code_execution", "shell"],
    permission: "auto",
    maxRounds: 256,
    dispatch: null,
    ...options.settings,
  } as const;
  let turns: readonly Turn[] = [];
  const seen: (readonly ChatMessage[])[] = [];
  const { files, sessions } = state;
  const server = await startServer("node", {
    script: (request) => {
      const messages = chatOf(request);
      seen.push(messages);
      const [turn = write(messages), ...rest] = turns;
      turns = rest;
      return [eventsOf(turn, seen.length)];
    },
    parts: { files, sessions },
    makeAgents: (inference) =>
      new AgentLoop({ settings, inference, tools, files, sessions, fetchFile, clock: realClock }),
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

function eventsOf(turn: Turn, round: number): readonly GenerateEvent[] {
  if (typeof turn === "string") return [begin(), text(turn), finish(), done];
  if ("events" in turn) return turn.events;
  const calls = turn.calls.flatMap(([name, args], i) =>
    toolCall(name, [typeof args === "string" ? args : JSON.stringify(args)], i).map((event) =>
      event.type === "tool_call" ? { ...event, id: `call_${round}_${i}` } : event,
    ),
  );
  const said = turn.text === undefined ? [] : [text(turn.text)];
  return [begin(), ...said, ...calls, finish("tool_calls"), done];
}

/** Returns the chat as the text worker would see it. */
function chatOf({ prompt, grammar, tools, changes }: GenerateRequest): readonly ChatMessage[] {
  const content = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
  const { prompt: whole } = changes === undefined ? content : changedContent(content, changes);
  return whole.kind === "chat" ? whole.messages : [];
}
