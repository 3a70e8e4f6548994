// MCP runs: server for tests of MCP tools in agent runs. Its model is scripted and makes one call per round. The HTTP
// server, the agent loop and the threads are real.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentLoop } from "../../../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../../../actors/agent-loop/files/fetch-file.ts";
import type { ToolsClient } from "../../../../actors/front/tools-client.ts";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { realClock } from "../../../../runtime/clock.ts";
import { type AgentPlaces, startAgentPlaces } from "../../../fixtures/actors/agent-places.ts";
import { begin, done, type FakeRun, finish, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../../fixtures/http-server.ts";
import type { McpRig } from "../../../threads/mcp/rig.ts";
import { chatOf } from "../rig.ts";

type Json = Readonly<Record<string, unknown>>;

const messages = [{ role: "user", content: "add" }];

/** One request for each protocol that starts a run. */
export const protocols: readonly { readonly name: string; readonly path: string; readonly body: Json }[] = [
  { name: "chat", path: "/v1/chat/completions", body: { model: "default", messages, enable_code_execution: true } },
  {
    name: "responses",
    path: "/v1/responses",
    body: { model: "default", input: "add", tools: [{ type: "code_interpreter", container: { type: "auto" } }] },
  },
  {
    name: "messages",
    path: "/v1/messages",
    body: {
      model: "default",
      messages,
      max_tokens: 99,
      tools: [{ type: "code_execution_20250825", name: "code_execution" }],
    },
  },
];

export class McpRuns {
  readonly server: TestServer;
  /** Calls that the model makes, one per round. */
  calls: (readonly [name: string, args: unknown])[] = [];
  readonly #places: AgentPlaces;
  readonly #folder: string;

  constructor(server: TestServer, places: AgentPlaces, folder: string) {
    this.server = server;
    this.#places = places;
    this.#folder = folder;
  }

  async post(path: string, body: Json): Promise<{ readonly status: number; readonly text: string }> {
    const response = await this.open(path, body);
    return { status: response.status, text: await response.text() };
  }

  async open(path: string, body: Json, signal: AbortSignal | null = null): Promise<Response> {
    const headers = { "content-type": "application/json", "anthropic-version": "2023-06-01" };
    const content = JSON.stringify(body);
    return await fetch(`${this.server.url}${path}`, { method: "POST", headers, body: content, signal });
  }

  /** Returns the tool results in the chat of the last run, in order. */
  results(): readonly string[] {
    const run = this.server.inference.runs.at(-1);
    const { messages: chat } = chatOf((run as FakeRun).request);
    return chat.filter(({ role }) => role === "tool").map(({ content }) => content ?? "");
  }

  async stop(): Promise<void> {
    await this.server.stop();
    await this.#places.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  nextTurn(): readonly GenerateEvent[] {
    const call = this.calls.shift();
    if (call === undefined) return [begin(), text("the end"), finish(), done];
    return [begin(), ...toolCall(call[0], [JSON.stringify(call[1])], 0), finish("tool_calls"), done];
  }
}

/** Starts the server with the tools of the MCP servers that `mcp` has connected. */
export async function startMcpRuns(mcp: McpRig): Promise<McpRuns> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-runs-"));
  const places = await startAgentPlaces(folder, null);
  const { files, sessions, skills } = places.state;
  const server = await startServer("node", {
    script: () => [runs.nextTurn()],
    parts: { files, sessions },
    makeAgents: (inference) =>
      new AgentLoop({
        settings: {
          groups: ["code_execution"],
          permission: "auto",
          maxRounds: 64,
          dispatch: null,
          approvalLimitMs: null,
          hasClientTools: true,
          registersServerTools: true,
        },
        inference,
        tools: places.tools as ToolsClient,
        web: null,
        sources: [mcp.client],
        files,
        sessions,
        skills,
        fetchFile,
        clock: realClock,
      }),
  });
  const runs = new McpRuns(server, places, folder);
  return runs;
}
