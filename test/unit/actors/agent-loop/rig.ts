// Agent loop rig: a loop over scripted generations and tools.
import { AgentLoop, type AgentSettings } from "../../../../actors/agent-loop/agent-loop.ts";
import { approvalTimeoutMs } from "../../../../actors/agent-loop/approvals.ts";
import { type AgentEvent, type AgentOptions, noEarlierCalls } from "../../../../actors/api/agent/agents.ts";
import { messageDigest } from "../../../../actors/api/agent/message-digest.ts";
import type { ToolSource } from "../../../../actors/api/agent/server-tools.ts";
import { defaultWebOptions } from "../../../../actors/api/agent/web.ts";
import { builtInTools } from "../../../../actors/tools/schemas.ts";
import type { ChatMessage, GenerateEvent, GenerateRequest } from "../../../../engines/generation.ts";
import { greedySampling, requestDefaults } from "../../../../engines/generation.ts";
import { FakeClock } from "../../../fixtures/fakes/fake-clock.ts";
import { begin, done, FakeInference, finish, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { FakeFiles, FakeSessions, FakeTools, noSkills } from "./parts.ts";

/** Output of the model in one round: a text, or tool calls with JSON arguments. */
export type Turn = string | readonly (readonly [name: string, args: object])[];

export interface Rig {
  readonly loop: AgentLoop;
  readonly inference: FakeInference;
  readonly tools: FakeTools;
  readonly files: FakeFiles;
  readonly sessions: FakeSessions;
  readonly clock: FakeClock;
}

const settings: AgentSettings = {
  groups: ["code_execution", "shell"],
  permission: "auto",
  hasClientTools: true,
  registersServerTools: true,
  maxRounds: 256,
  approvalLimitMs: approvalTimeoutMs,
  dispatch: null,
};

/** Creates a rig whose model outputs these turns one after another, and then "end". */
export function createRig(
  turns: readonly Turn[],
  given: Partial<AgentSettings> = {},
  idOf: (round: number, i: number) => string = (round, i) => `call_${round}_${i}`,
  sources: readonly ToolSource[] = [],
): Rig {
  let at = 0;
  const inference = new FakeInference(() => [batchOf(turns[at++] ?? "end", at, idOf)]);
  const tools = new FakeTools();
  const files = new FakeFiles();
  const sessions = new FakeSessions();
  const clock = new FakeClock();
  const fetchFile = () => Promise.reject(new Error("no URL is fetched in this test"));
  const loop = new AgentLoop({
    settings: { ...settings, ...given },
    inference,
    tools,
    web: null,
    sources,
    files,
    sessions,
    skills: noSkills(),
    fetchFile,
    clock,
  });
  return { loop, inference, tools, files, sessions, clock };
}

function batchOf(turn: Turn, round: number, idOf: (round: number, i: number) => string): readonly GenerateEvent[] {
  if (typeof turn === "string") return [begin(), text(turn), finish(), done];
  const calls = turn.flatMap(([name, args], i) =>
    toolCall(name, [JSON.stringify(args)], i).map((event) =>
      event.type === "tool_call" ? { ...event, id: idOf(round, i) } : event,
    ),
  );
  return [begin(), ...calls, finish("tool_calls"), done];
}

const question: readonly ChatMessage[] = [{ role: "user", content: "what is 2 + 2?" }];

export function requestOf(messages: readonly ChatMessage[] = question): GenerateRequest {
  return {
    ...requestDefaults,
    model: "tiny",
    client: "someone",
    prompt: { kind: "chat", messages, templateArguments: {} },
    sampling: greedySampling,
    tools: { specs: builtInTools.map(({ spec }) => spec), required: false, parallel: true },
  };
}

export function optionsOf(
  given: Partial<AgentOptions> = {},
  messages: readonly ChatMessage[] = question,
): AgentOptions {
  return {
    groups: ["code_execution", "shell"],
    serverTools: [],
    maxUses: {},
    web: defaultWebOptions,
    skills: [],
    isPlain: false,
    permission: null,
    maxRounds: null,
    maxCalls: null,
    sessionId: null,
    earlierCalls: noEarlierCalls,
    continuesAnswer: false,
    digests: messages.map(messageDigest),
    requestedFiles: [],
    inputFiles: [],
    isStreamed: true,
    ...given,
  };
}

/** Runs a request to its end. `onEvent` is called with each event as it arrives. */
export async function ran(
  { loop }: Rig,
  given: Partial<AgentOptions> = {},
  onEvent: (event: AgentEvent) => void = () => {},
  signal: AbortSignal = new AbortController().signal,
): Promise<readonly AgentEvent[]> {
  const events: AgentEvent[] = [];
  for await (const batch of loop.run(requestOf(), optionsOf(given), signal)) {
    for (const event of batch) {
      events.push(event);
      onEvent(event);
    }
  }
  return events;
}

/** Returns the changes to the prompt in the generation request of one round. */
export function changesOf({ inference }: Rig, round: number) {
  return inference.runs[round]?.request.changes;
}
