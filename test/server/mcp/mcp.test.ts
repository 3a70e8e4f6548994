// MCP server on a real socket with a fake inference: valid requests, and requests that no regular client would send.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { Client, type ProgressCallback, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { hello } from "../../fixtures/fakes/fake-inference.ts";
import {
  cancel,
  chatCall,
  initialize,
  list,
  messages,
  never,
  post,
  sessionOf,
  startMcp,
  until,
} from "../../fixtures/mcp-server.ts";

describe("the MCP server", async () => {
  const server = await startMcp("node");
  after(() => server.stop());

  it("answers in plain JSON if the client asks for that, session or not", async () => {
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

  it("lists the arguments that it ignores beside the result", async () => {
    const client = new Client({ name: "test", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(server.url)));
    const { _meta, isError } = await client.callTool({ name: "chat", arguments: { messages, zebra: 1, mood: "x" } });
    assert.deepEqual([_meta?.["x-ignored-fields"], isError ?? false], ["zebra, mood", false]);
    const known = await client.callTool({ name: "chat", arguments: { messages } });
    assert.equal(known._meta?.["x-ignored-fields"], undefined);
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
    ["an initialize that says nothing", { jsonrpc: "2.0", id: 1, method: "initialize" }, {}, 400, -32600],
    ["an id that is there twice", [list, list], {}, 400, -32600],
  ];
  for (const [what, body, headers, status, code] of refusals) {
    it(`refuses ${what}`, async () => {
      const reply = await post(server, body, headers);
      assert.equal(reply.status, status, reply.body);
      const { jsonrpc, error } = JSON.parse(reply.body);
      assert.deepEqual([jsonrpc, error.code], ["2.0", code]);
    });
  }

  it("accepts pages of this machine, and tells browsers so", async () => {
    const origin = { origin: "http://localhost:6274" };
    const { status, headers } = await post(server, list, origin);
    assert.equal(status, 200);
    assert.match(headers.get("access-control-expose-headers")!, /mcp-session-id/);
    const preflight = await fetch(server.url, { method: "OPTIONS", headers: origin });
    assert.equal(preflight.status, 204);
    assert.match(preflight.headers.get("access-control-allow-methods")!, /DELETE/);
  });

  it("returns 404 for other paths, and accepts no other methods", async () => {
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
    const session = await sessionOf(server);
    for (const accept of ["text/event-stream", "application/json"]) {
      const answer = post(server, chatCall(7), { ...session, accept });
      const run = await server.nextRun();
      await post(server, cancel(7), session);
      assert.doesNotMatch((await answer).body, /result|error/);
      await until(() => run.state === "cancelled");
    }
    server.inference.script = hello;
  });

  it("answers the other calls of a batch in which one is cancelled", async () => {
    server.inference.script = function* (request) {
      yield { waitMs: 200 };
      yield* hello(request);
    };
    const session = await sessionOf(server);
    for (const accept of ["text/event-stream", "application/json"]) {
      const before = server.inference.runs.length;
      const answer = post(server, [chatCall(7), chatCall(8), { ...list, method: "ping" }], { ...session, accept });
      await until(() => server.inference.runs.length === before + 2);
      await post(server, cancel(7), session);
      const { body } = await answer;
      assert.match(body, /Hello world.*"id":8/);
      assert.doesNotMatch(body, /"id":7/);
      assert.match(body, /"id":2/);
    }
    server.inference.script = hello;
  });

  it("ends the answer where all of a batch is cancelled, in a session or none", async () => {
    server.inference.script = never;
    const session = await sessionOf(server);
    const answer = post(server, [chatCall(7), chatCall(8)], session);
    await server.nextRun();
    await post(server, [cancel(8), cancel(7)], session);
    assert.doesNotMatch((await answer).body, /result|error/);
    const alone = await post(server, [chatCall(7), cancel(7)]);
    assert.doesNotMatch(alone.body, /result|error/);
    server.inference.script = hello;
  });

  it("refuses an id that another request of the session has, until that is answered", async () => {
    server.inference.script = never;
    const session = await sessionOf(server);
    const answer = post(server, chatCall(7), session);
    await server.nextRun();
    const refused = await post(server, { ...list, id: 7 }, session);
    assert.deepEqual([refused.status, JSON.parse(refused.body).error.code], [400, -32600]);
    assert.equal((await post(server, { ...list, id: "7" }, session)).status, 200);
    await post(server, cancel(7), session);
    await answer;
    server.inference.script = hello;
    const again = { ...session, accept: "application/json" };
    for (let i = 0; i < 2; i++) assert.match((await post(server, chatCall(7), again)).body, /Hello world/);
    const wrongRevision = { ...again, "mcp-protocol-version": "1999-01-01" };
    assert.equal((await post(server, chatCall(7), wrongRevision)).status, 400);
    assert.match((await post(server, chatCall(7), again)).body, /Hello world/);
  });

  it("rejects arguments that are nested too deeply, with a short message", async () => {
    const depth = 90_000;
    const nested = `${"[".repeat(depth)}${"]".repeat(depth)}`;
    const call = JSON.stringify(chatCall(1)).replace(JSON.stringify(messages), nested);
    const { status, body } = await post(server, call, { accept: "application/json" });
    assert.equal(status, 200);
    const { code, message } = JSON.parse(body).error;
    assert.equal(code, -32602);
    assert.match(message, /expected arguments of at most .* nested at most 128 deep/);
    assert.equal((await post(server, list)).status, 200);
  });
});
