// The MCP server on real sockets with a fake inference: the official client on every edge that loads here, what no client
// would send, and the conformance suite.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type ProgressCallback, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { z } from "zod";
import { conformanceServer } from "../fixtures/conformance-tools.ts";
import { done, failure, finish, hello, type Script, text, toolCall } from "../fixtures/fake-inference.ts";
import { loadableEdges } from "../fixtures/http-server.ts";
import { type McpTestServer, startMcp } from "../fixtures/mcp-server.ts";

const messages = [{ role: "user", content: "hi" }];
const anything = z.looseObject({});
const never: Script = function* () {
  yield [text("Hel")];
  yield { waitMs: 60_000 };
};

async function connected({
  url,
}: McpTestServer): Promise<{ client: Client; transport: StreamableHTTPClientTransport }> {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, transport };
}

interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

/** Sends what no client would: `body` as it is, if it is text or bytes. */
async function post({ url }: McpTestServer, body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
  const init = { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers };
  const isRaw = typeof body === "string" || body instanceof Uint8Array;
  const response = await fetch(url, { method: "POST", headers: init, body: isRaw ? body : JSON.stringify(body) });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

async function until(claim: () => boolean): Promise<void> {
  for (let i = 0; i < 200 && !claim(); i++) await sleep(10);
  assert.ok(claim());
}

for (const edge of loadableEdges()) {
  describe(`the official MCP client on the ${edge} edge`, async () => {
    const server = await startMcp(edge);
    after(() => server.stop());
    const { client, transport } = await connected(server);
    after(() => client.close());

    it("initializes a session and pings", async () => {
      assert.deepEqual(client.getServerVersion(), { name: "troupe", version: "1.2.3" });
      assert.deepEqual(client.getServerCapabilities(), { tools: {} });
      assert.match(client.getInstructions()!, /chat/);
      assert.match(transport.sessionId!, /^[0-9a-f-]{36}$/);
      assert.deepEqual(await client.ping(), {});
    });

    it("lists a tool a capability, with the fields of its route", async () => {
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map(({ name }) => name),
        ["chat", "embed"],
      );
      const { properties, required } = tools[0]!.inputSchema;
      assert.deepEqual(required, ["messages"]);
      assert.ok(properties!.temperature);
      assert.equal(properties!.stream, undefined);
    });

    it("chats", async () => {
      const result = await client.callTool({ name: "chat", arguments: { messages, max_tokens: 7 } });
      assert.deepEqual(result.content, [{ type: "text", text: "Hello world" }]);
      assert.equal(result.structuredContent, undefined);
      assert.deepEqual(result._meta?.finish_reasons, ["stop"]);
      assert.equal(server.inference.lastRun.request.maxTokens, 7);
    });

    it("embeds", async () => {
      const result = await client.callTool({ name: "embed", arguments: { input: ["a", "b"] } });
      const { data } = result.structuredContent as { data: { embedding: number[] }[] };
      assert.deepEqual(
        data.map(({ embedding }) => embedding),
        [
          [0, 0.5],
          [1, 0.5],
        ],
      );
    });

    it("tells progress to whom asks for it", async () => {
      server.inference.script = function* () {
        for (const word of ["one ", "two ", "three"]) {
          yield [text(word)];
          yield { waitMs: 120 };
        }
        yield [finish(), done];
      };
      const told: [number, string | undefined][] = [];
      const onprogress: ProgressCallback = ({ progress, message }) => {
        told.push([progress, message]);
      };
      const result = await client.callTool({ name: "chat", arguments: { messages } }, { onprogress });
      server.inference.script = hello;
      assert.deepEqual(result.content, [{ type: "text", text: "one two three" }]);
      assert.deepEqual(told, [
        [4, "one "],
        [8, "two "],
        [13, "three"],
      ]);
    });

    it("gives back calls the model makes", async () => {
      server.inference.script = function* () {
        yield [...toolCall("add", ['{"a":', "1}"]), finish("tool_calls"), done];
      };
      const tools = [{ type: "function", function: { name: "add", parameters: { type: "object" } } }];
      const result = await client.callTool({ name: "chat", arguments: { messages, tools } });
      server.inference.script = hello;
      const { choices } = result.structuredContent as {
        choices: { message: { tool_calls: { function: object }[] } }[];
      };
      assert.deepEqual(choices[0]!.message.tool_calls[0]!.function, { name: "add", arguments: '{"a":1}' });
    });

    it("cancels the generation when the call is cancelled", async () => {
      server.inference.script = never;
      const aborter = new AbortController();
      const call = client.callTool({ name: "chat", arguments: { messages } }, { signal: aborter.signal });
      const run = await server.nextRun();
      aborter.abort();
      await assert.rejects(call);
      await until(() => run.state === "cancelled");
      server.inference.script = hello;
      assert.deepEqual(await client.ping(), {});
    });

    it("cancels the generation when the connection is lost", async () => {
      server.inference.script = never;
      const other = await connected(server);
      const call = other.client.callTool({ name: "chat", arguments: { messages } });
      call.catch(() => {});
      const run = await server.nextRun();
      await other.client.close();
      await until(() => run.state === "cancelled");
      server.inference.script = hello;
    });

    it("answers failures of a tool as its result, and of the protocol as errors", async () => {
      const wrong = await client.callTool({ name: "chat", arguments: { messages, temperature: 9 } });
      assert.equal(wrong.isError, true);
      assert.match(JSON.stringify(wrong.content), /temperature/);
      server.inference.script = function* () {
        yield [text("Hel")];
        yield [failure("model_failed")];
      };
      const failed = await client.callTool({ name: "chat", arguments: { messages } });
      server.inference.script = hello;
      assert.deepEqual(failed.content, [{ type: "text", text: "scripted model_failed" }]);
      assert.equal(failed.isError, true);
      await assert.rejects(client.callTool({ name: "sing" }), /expected one of the tools.*got "sing"/);
      await assert.rejects(client.request({ method: "no/such" }, anything), { code: -32601 });
    });

    it("serves two sessions at once, each its own", async () => {
      const other = await connected(server);
      assert.notEqual(other.transport.sessionId, transport.sessionId);
      const call = { name: "chat", arguments: { messages } };
      const [mine, theirs] = await Promise.all([client.callTool(call), other.client.callTool(call)]);
      assert.deepEqual(mine.content, theirs.content);
      const ended = { "mcp-session-id": other.transport.sessionId! };
      await other.transport.terminateSession();
      assert.equal((await post(server, { jsonrpc: "2.0", id: 1, method: "ping" }, ended)).status, 404);
      assert.deepEqual(await client.ping(), {});
      await other.client.close();
    });
  });
}

const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "raw", version: "1" } },
};
const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };

describe("the MCP server", async () => {
  const server = await startMcp("node");
  after(() => server.stop());

  it("answers in plain JSON whoever asks for that, session or not", async () => {
    const begun = await post(server, initialize, { accept: "application/json" });
    assert.equal(begun.headers.get("content-type"), "application/json");
    const { result } = JSON.parse(begun.body);
    assert.equal(result.protocolVersion, "2025-11-25");
    assert.deepEqual(result.serverInfo, { name: "troupe", version: "1.2.3" });
    const session = { accept: "application/json", "mcp-session-id": begun.headers.get("mcp-session-id")! };
    const initialized = { jsonrpc: "2.0", method: "notifications/initialized" };
    assert.equal((await post(server, initialized, session)).status, 202);
    for (const headers of [session, { accept: "*/*" }]) {
      const { status, body } = await post(server, list, headers);
      assert.equal(status, 200);
      assert.equal(JSON.parse(body).result.tools.length, 2);
    }
    const batch = await post(server, [list, { jsonrpc: "2.0", id: 3, method: "ping" }], session);
    assert.deepEqual(
      JSON.parse(batch.body)
        .map(({ id }: { id: number }) => id)
        .sort(),
      [2, 3],
    );
  });

  it("serves the revision of 2026, which has no sessions", async () => {
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
    await client.connect(new StreamableHTTPClientTransport(new URL(server.url)));
    assert.equal(client.getNegotiatedProtocolVersion(), "2026-07-28");
    const told: number[] = [];
    const onprogress: ProgressCallback = ({ progress }) => {
      told.push(progress);
    };
    const result = await client.callTool({ name: "chat", arguments: { messages } }, { onprogress });
    assert.deepEqual(result.content, [{ type: "text", text: "Hello world" }]);
    assert.deepEqual(told, [5]);
    server.inference.script = never;
    const aborter = new AbortController();
    const call = client.callTool({ name: "chat", arguments: { messages } }, { signal: aborter.signal });
    const run = await server.nextRun();
    aborter.abort();
    await assert.rejects(call);
    await until(() => run.state === "cancelled");
    server.inference.script = hello;
    await client.close();
  });

  const refusals: readonly [
    what: string,
    body: unknown,
    headers: Record<string, string>,
    status: number,
    code: number,
  ][] = [
    ["what is not JSON", "{bad", {}, 400, -32700],
    ["what is not UTF-8", Buffer.from([0x22, 0xff, 0x22]), {}, 400, -32700],
    ["JSON that is no message", { method: "ping" }, {}, 400, -32600],
    ["an empty batch", [], {}, 400, -32600],
    ["a batch of too many", Array.from({ length: 101 }, () => list), {}, 400, -32600],
    ["another content type", list, { "content-type": "text/plain" }, 415, -32000],
    ["an unknown session", list, { "mcp-session-id": "nobody" }, 404, -32001],
    ["an unknown revision", list, { "mcp-protocol-version": "1999-01-01" }, 400, -32000],
    ["a page from elsewhere", list, { origin: "http://evil.example" }, 403, -32000],
    ["a page without an origin", list, { origin: "null" }, 403, -32000],
    ["an initialize that says nothing", { jsonrpc: "2.0", id: 1, method: "initialize" }, {}, 400, -32000],
  ];
  for (const [what, body, headers, status, code] of refusals) {
    it(`refuses ${what}`, async () => {
      const reply = await post(server, body, headers);
      assert.equal(reply.status, status, reply.body);
      const { jsonrpc, error } = JSON.parse(reply.body);
      assert.deepEqual([jsonrpc, error.code], ["2.0", code]);
    });
  }

  it("takes pages of this machine, and tells browsers so", async () => {
    const origin = { origin: "http://localhost:6274" };
    const { status, headers } = await post(server, list, origin);
    assert.equal(status, 200);
    assert.match(headers.get("access-control-expose-headers")!, /mcp-session-id/);
    const preflight = await fetch(server.url, { method: "OPTIONS", headers: origin });
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers.get("access-control-allow-methods")!, /DELETE/);
  });

  it("has nothing at other paths, and no other methods", async () => {
    const elsewhere = await fetch(new URL("/v1/models", server.url));
    assert.equal(elsewhere.status, 404);
    for (const method of ["GET", "DELETE", "PUT"]) {
      const { status, headers } = await fetch(server.url, { method });
      assert.equal(status, 405);
      assert.match(headers.get("allow")!, /POST/);
    }
  });

  it("ends the answer to a call that another request cancels", async () => {
    server.inference.script = never;
    const { headers } = await post(server, initialize);
    const session = { "mcp-session-id": headers.get("mcp-session-id")! };
    const call = { jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "chat", arguments: { messages } } };
    for (const accept of ["text/event-stream", "application/json"]) {
      const answer = post(server, call, { ...session, accept });
      const run = await server.nextRun();
      await post(server, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } }, session);
      assert.doesNotMatch((await answer).body, /result|error/);
      await until(() => run.state === "cancelled");
    }
    server.inference.script = hello;
  });

  it("survives arguments nested beyond reason", async () => {
    const depth = 90_000;
    const nested = `${"[".repeat(depth)}${"]".repeat(depth)}`;
    const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat","arguments":{"messages":${nested}}}}`;
    const { status, body } = await post(server, call);
    assert.ok(status === 200 || status === 400, body);
    assert.match(body, /error/i);
    assert.equal((await post(server, list)).status, 200);
  });
});

describe("the sessions of the MCP server", () => {
  const open = async (server: McpTestServer): Promise<Reply> => post(server, initialize);
  const use = (server: McpTestServer, { headers }: Reply) =>
    post(server, list, { "mcp-session-id": headers.get("mcp-session-id")! });

  it("gives the place of the one that rested longest to a new one", async () => {
    const server = await startMcp("node", { maxSessions: 2 });
    after(() => server.stop());
    const [first, second] = [await open(server), await open(server)];
    assert.equal((await use(server, first)).status, 200);
    const third = await open(server);
    assert.equal((await use(server, second)).status, 404);
    assert.equal((await use(server, first)).status, 200);
    assert.equal((await use(server, third)).status, 200);
  });

  it("refuses more while all are in use, and drops the streams that only listen when it drains", async () => {
    const server = await startMcp("node", { maxSessions: 1 });
    after(() => server.stop());
    const { headers } = await open(server);
    const listening = await fetch(server.url, {
      headers: { accept: "text/event-stream", "mcp-session-id": headers.get("mcp-session-id")! },
    });
    assert.equal(listening.status, 200);
    const refused = await open(server);
    assert.equal(refused.status, 429);
    assert.match(refused.body, /mcp_max_sessions/);
    server.mcp.drain();
    await listening.text();
    assert.equal((await open(server)).status, 200);
  });

  it("ends one that nobody uses", async () => {
    const server = await startMcp("node", { sessionIdleMs: 60 });
    after(() => server.stop());
    const begun = await open(server);
    assert.equal((await use(server, begun)).status, 200);
    await sleep(120);
    assert.equal((await use(server, begun)).status, 404);
  });
});

/** What the suite says of each of its scenarios, by name. */
function conformance({ url }: McpTestServer): Promise<ReadonlyMap<string, boolean>> {
  const require = createRequire(import.meta.url);
  const suite = require.resolve("@modelcontextprotocol/conformance/dist/index.js");
  return new Promise((resolve) => {
    execFile(process.execPath, [suite, "server", "--url", url], { timeout: 25_000 }, (_, stdout) => {
      const lines = stdout.matchAll(/^\S ([\w-]+): (\d+) passed, (\d+) failed/gm);
      resolve(new Map([...lines].map(([, name = "", passed, failed]) => [name, passed !== "0" && failed === "0"])));
    });
  });
}

describe("the conformance suite", () => {
  // The other scenarios are of prompts, resources, completion and log levels, none of which this server says it has.
  const ofAnyServer = [
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
  ];
  const ofNamedTools = [
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "logging-set-level",
  ];

  for (const edge of loadableEdges()) {
    it(`passes as far as it applies, on the ${edge} edge`, async () => {
      const server = await startMcp(edge);
      const verdicts = await conformance(server);
      await server.stop();
      for (const name of ofAnyServer) assert.equal(verdicts.get(name), true, name);
    });

    it(`passes for the tools it names, on the ${edge} edge`, async () => {
      const server = await startMcp(edge, {}, conformanceServer);
      const verdicts = await conformance(server);
      await server.stop();
      for (const name of [...ofAnyServer, ...ofNamedTools]) assert.equal(verdicts.get(name), true, name);
    });
  }
});
