// MCP tools in agent runs over HTTP. Only the model is scripted; the MCP servers, the thread that connects to them and the HTTP
// server are real.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { McpRig, nodeProcess, officialServers, serverSettings, until } from "../../../threads/mcp/rig.ts";
import { type McpRuns, protocols, startMcpRuns } from "./mcp-runs.ts";

type Json = Readonly<Record<string, unknown>>;

const mcp = new McpRig([serverSettings("demo", nodeProcess(officialServers.everything, ["stdio"]))]);
let runs: McpRuns;

before(async () => {
  await mcp.start(1);
  await until(() => mcp.names().includes("trigger-elicitation-request"), "the tools are listed");
  runs = await startMcpRuns(mcp);
});

after(async () => {
  await runs.stop();
  await mcp.stop();
});

const messages = [{ role: "user", content: "add" }];

describe("tools of MCP servers in runs", () => {
  for (const protocol of protocols) {
    it(`run and give their results to the model, over ${protocol.name}`, async () => {
      runs.calls = [
        ["get-sum", { a: 30, b: 12 }],
        ["echo", { message: "again" }],
      ];
      const { status, text: answer } = await runs.post(protocol.path, protocol.body);
      assert.equal(status, 200, answer);
      assert.match(answer, /the end/);
      const seen = runs.results().join("\n");
      assert.match(seen, /The sum of 30 and 12 is 42/);
      assert.match(seen, /Echo: again/);
    });
  }

  it("are those of the servers that a request names", async () => {
    runs.calls = [["echo", { message: "named" }]];
    const named = { input: "x", tools: [{ type: "mcp", server_label: "demo", allowed_tools: ["echo"] }] };
    const { status, text: answer } = await runs.post("/v1/responses", named);
    assert.equal(status, 200, answer);
    const { output } = JSON.parse(answer) as { readonly output: readonly Json[] };
    assert.deepEqual(
      output.filter(({ type }) => type === "mcp_call").map(({ server_label, name }) => [server_label, name]),
      [["demo", "echo"]],
    );
    const unknown = await runs.post("/v1/responses", { ...named, tools: [{ type: "mcp", server_label: "other" }] });
    assert.equal(unknown.status, 400);
    assert.match(unknown.text, /demo/);
  });

  it("that fail are marked as failed", async () => {
    const protocol = protocols.find(({ name }) => name === "messages");
    runs.calls = [["get-sum", { a: "x" }]];
    const { text: answer } = await runs.post("/v1/messages", protocol?.body ?? {});
    const { content } = JSON.parse(answer) as { readonly content: readonly Json[] };
    assert.deepEqual(
      content.filter(({ type }) => type === "mcp_tool_result").map(({ is_error }) => is_error),
      [true],
      answer,
    );
  });

  it("send their progress in the stream of chat", async () => {
    runs.calls = [["trigger-long-running-operation", { duration: 0.6, steps: 2 }]];
    const { text: stream } = await runs.post("/v1/chat/completions", {
      messages,
      enable_code_execution: true,
      stream: true,
    });
    assert.match(stream, /"progress":1,"total":2/);
    assert.match(stream, /Long running operation completed/);
  });

  it("ask for approval as tools of MCP", async () => {
    runs.calls = [["echo", { message: "hi" }]];
    const asked = await chatAsking({ agent_permission: "ask" }, { decision: "approve" });
    assert.deepEqual(asked.request.tool, { source: "mcp", kind: "external", label: "demo: echo" });
    assert.match(asked.stream, /Echo: hi/);
  });

  it("ask the user for data; the decision has the data, checked against the schema", async () => {
    runs.calls = [["trigger-elicitation-request", {}]];
    const content = { name: "Ada", check: true, email: "ada@example.org" };
    const asked = await chatAsking({}, { decision: "approve", content }, async (id) => {
      for (const [wrong, message] of [
        [{}, /content\.name is required/],
        [{ name: 5 }, /content\.name expects a string; got 5/],
        [{ name: "Ada", email: "no" }, /content\.email expects the format email/],
        [{ name: "Ada", age: 5 }, /content\.age is not a field of requested_schema/],
      ] as const) {
        const { status, text: answer } = await runs.post(`/v1/agent/approvals/${id}`, {
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

  it("learn that their question was denied", async () => {
    runs.calls = [["trigger-elicitation-request", {}]];
    const { stream } = await chatAsking({}, { decision: "deny" });
    assert.match(stream, /declined/);
  });

  it("cannot ask in a request that is not streamed: the question is declined at once", async () => {
    runs.calls = [["trigger-elicitation-request", {}]];
    const { text: answer } = await runs.post("/v1/chat/completions", { messages, enable_code_execution: true });
    assert.match(answer, /declined/);
  });

  it("are counted in the list of models", async () => {
    const { data } = (await (await fetch(`${runs.server.url}/v1/models`)).json()) as { data: readonly Json[] };
    assert.equal(data[0]?.mcp_servers_connected, 1);
    assert.equal(data[0]?.mcp_tools_count, mcp.names().length);
  });
});

/** Sends a streamed chat request and decides its first approval. Returns the approval and the whole stream. */
async function chatAsking(body: Json, decision: Json, before: (id: string) => Promise<void> = async () => {}) {
  const response = await fetch(`${runs.server.url}/v1/chat/completions`, {
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
    const { status, text: answer } = await runs.post(`/v1/agent/approvals/${request.approval_id}`, decision);
    assert.equal(status, 200, answer);
  }
  assert.ok(request !== null, stream);
  return { request, stream };
}
