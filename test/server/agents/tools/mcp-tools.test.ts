// Tools of MCP servers in runs over HTTP. The model is scripted; the MCP servers, their place and the HTTP server are real.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { AgentLoop } from "../../../../actors/agent-loop/agent-loop.ts";
import { fetchFile } from "../../../../actors/agent-loop/files/fetch-file.ts";
import type { ToolsClient } from "../../../../actors/front/tools-client.ts";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { realClock } from "../../../../runtime/clock.ts";
import { startAgentPlaces } from "../../../fixtures/actors/agent-places.ts";
import { begin, done, finish, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../../fixtures/http-server.ts";
import { McpRig, nodeProcess, officialServers, serverSettings, until } from "../../../threads/mcp/rig.ts";

type Json = Readonly<Record<string, unknown>>;

const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-runs-"));
const mcp = new McpRig([serverSettings("demo", nodeProcess(officialServers.everything, ["stdio"]))]);
let places: Awaited<ReturnType<typeof startAgentPlaces>>;
let server: TestServer;
/** Calls that the model makes, one a round. */
let calls: (readonly [name: string, args: Json])[] = [];

before(async () => {
  places = await startAgentPlaces(folder, null);
  await mcp.start(1);
  await until(() => mcp.names().includes("trigger-elicitation-request"), "the tools are listed");
  const { files, sessions, skills } = places.state;
  server = await startServer("node", {
    script: () => [nextTurn()],
    parts: { files, sessions },
    makeAgents: (inference) =>
      new AgentLoop({
        settings: {
          groups: ["code_execution"],
          permission: "auto",
          maxRounds: 8,
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
});

after(async () => {
  await server.stop();
  await mcp.stop();
  await places.stop();
  rmSync(folder, { recursive: true, force: true });
});

function nextTurn(): readonly GenerateEvent[] {
  const call = calls.shift();
  if (call === undefined) return [begin(), text("the end"), finish(), done];
  return [begin(), ...toolCall(call[0], [JSON.stringify(call[1])], 0), finish("tool_calls"), done];
}

async function post(path: string, body: Json): Promise<{ readonly status: number; readonly text: string }> {
  const headers = { "content-type": "application/json", "anthropic-version": "2023-06-01" };
  const response = await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: response.status, text: await response.text() };
}

const messages = [{ role: "user", content: "add" }];

describe("tools of MCP servers in runs", () => {
  for (const [protocol, path, body] of [
    ["chat", "/v1/chat/completions", { messages, enable_code_execution: true }],
    [
      "responses",
      "/v1/responses",
      { input: "add", tools: [{ type: "code_interpreter", container: { type: "auto" } }] },
    ],
    [
      "messages",
      "/v1/messages",
      { messages, max_tokens: 99, tools: [{ type: "code_execution_20250825", name: "code_execution" }] },
    ],
  ] as const) {
    it(`run and give their results to the model, over ${protocol}`, async () => {
      calls = [
        ["get-sum", { a: 30, b: 12 }],
        ["echo", { message: "again" }],
      ];
      const { status, text: answer } = await post(path, { model: "default", ...body });
      assert.equal(status, 200, answer);
      assert.match(answer, /the end/);
      const seen = JSON.stringify(server.inference.runs.at(-1)?.request.changes);
      assert.match(seen, /The sum of 30 and 12 is 42/);
      assert.match(seen, /Echo: again/);
    });
  }

  it("send their progress in the stream of chat", async () => {
    calls = [["trigger-long-running-operation", { duration: 0.6, steps: 2 }]];
    const { text: stream } = await post("/v1/chat/completions", {
      messages,
      enable_code_execution: true,
      stream: true,
    });
    assert.match(stream, /"progress":1,"total":2/);
    assert.match(stream, /Long running operation completed/);
  });

  it("ask for approval as tools of MCP", async () => {
    calls = [["echo", { message: "hi" }]];
    const asked = await chatAsking({ agent_permission: "ask" }, { decision: "approve" });
    assert.deepEqual(asked.request.tool, { source: "mcp", kind: "external", label: "demo: echo" });
    assert.match(asked.stream, /Echo: hi/);
  });

  it("ask the user for data; the decision has the data, checked against the schema", async () => {
    calls = [["trigger-elicitation-request", {}]];
    const content = { name: "Ada", check: true, email: "ada@example.org" };
    const asked = await chatAsking({}, { decision: "approve", content }, async (id) => {
      for (const [wrong, message] of [
        [{}, /content\.name is required/],
        [{ name: 5 }, /content\.name expects a string; got 5/],
        [{ name: "Ada", email: "no" }, /content\.email expects the format email/],
        [{ name: "Ada", age: 5 }, /content\.age is not a field of requested_schema/],
      ] as const) {
        const { status, text: answer } = await post(`/v1/agent/approvals/${id}`, {
          decision: "approve",
          content: wrong,
        });
        assert.equal(status, 400, answer);
        assert.match(answer, message);
      }
    });
    assert.deepEqual(asked.request.tool, { source: "mcp", kind: "external", label: "demo asks" });
    assert.match(
      JSON.stringify(asked.request.arguments),
      /"message":"Please provide inputs.*"requested_schema":\{"type":"object"/,
    );
    assert.match(asked.stream, /Ada/);
  });

  it("whose question is denied are told so", async () => {
    calls = [["trigger-elicitation-request", {}]];
    const { stream } = await chatAsking({}, { decision: "deny" });
    assert.match(stream, /declined/);
  });

  it("cannot ask in a request that is not streamed: the question is declined at once", async () => {
    calls = [["trigger-elicitation-request", {}]];
    const { text: answer } = await post("/v1/chat/completions", { messages, enable_code_execution: true });
    assert.match(answer, /declined/);
  });

  it("are counted in the list of models", async () => {
    const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as { data: readonly Json[] };
    assert.equal(data[0]?.mcp_servers_connected, 1);
    assert.equal(data[0]?.mcp_tools_count, mcp.names().length);
  });
});

/** Sends a streamed chat request, decides its first approval, and returns the approval and the whole stream. */
async function chatAsking(body: Json, decision: Json, before: (id: string) => Promise<void> = async () => {}) {
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages, enable_code_execution: true, stream: true, ...body }),
  });
  let stream = "";
  let request: Json | null = null;
  for await (const piece of response.body ?? []) {
    stream += Buffer.from(piece).toString("utf8");
    const [, data = ""] = /^data: (\{.*agentic_tool_approval_required.*\})$/m.exec(stream) ?? [];
    if (data === "" || request !== null) continue;
    request = JSON.parse(data) as Json;
    await before(String(request.approval_id));
    const { status, text: answer } = await post(`/v1/agent/approvals/${request.approval_id}`, decision);
    assert.equal(status, 200, answer);
  }
  assert.ok(request !== null, stream);
  return { request, stream };
}
