// Number and lifetime of the MCP server's sessions, on a real socket.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { McpSessionStore, mcpSessionLimits } from "../../../actors/state/shared/mcp-session-store.ts";
import { MemoryTables } from "../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../runtime/store/table-store.ts";
import {
  initialize,
  list,
  type McpTestServer,
  post,
  type Reply,
  sessionOf,
  startMcp,
} from "../../fixtures/mcp-server.ts";

describe("the sessions of the MCP server", () => {
  const open = async (server: McpTestServer): Promise<Reply> => post(server, initialize);
  const use = (server: McpTestServer, { headers }: Reply) =>
    post(server, list, { "mcp-session-id": headers.get("mcp-session-id")! });

  it("replaces the session that was idle longest by a new one", async () => {
    const server = await startMcp("node", { maxSessions: 2 });
    after(() => server.stop());
    const [first, second] = [await open(server), await open(server)];
    assert.equal((await use(server, first)).status, 200);
    const third = await open(server);
    assert.equal((await use(server, second)).status, 404);
    assert.equal((await use(server, first)).status, 200);
    assert.equal((await use(server, third)).status, 200);
  });

  it("replaces a session of the client that has most, however long others were idle", async () => {
    const server = await startMcp("node", { maxSessions: 4 });
    after(() => server.stop());
    const openAs = (client: string) => post(server, initialize, { "x-api-key": `the key of the client ${client}` });
    const quiet = await openAs("quiet");
    const other = await openAs("other");
    const greedy: Reply[] = [];
    for (let i = 0; i < 20; i++) greedy.push(await openAs("greedy"));
    assert.equal((await use(server, quiet)).status, 200);
    assert.equal((await use(server, other)).status, 200);
    const last = await openAs("third");
    const statuses = await Promise.all(greedy.map(async (reply) => (await use(server, reply)).status));
    assert.deepEqual(statuses, [...Array(19).fill(404), 200]);
    for (const reply of [quiet, other, last]) assert.equal((await use(server, reply)).status, 200);
  });

  it("end none for a rejected initialize", async () => {
    const server = await startMcp("node", { maxSessions: 1 });
    after(() => server.stop());
    const begun = await open(server);
    for (const wrong of [{ id: undefined }, { params: { protocolVersion: 5 } }, { params: undefined }]) {
      assert.equal((await post(server, { ...initialize, ...wrong })).status, 400);
    }
    assert.equal((await use(server, begun)).status, 200);
  });

  it("begins one however the method's name is escaped in JSON", async () => {
    const server = await startMcp("node", { maxSessions: 1 });
    after(() => server.stop());
    const begun = await post(server, initialize, { "content-type": "application/vnd.example+json" });
    assert.equal(begun.status, 200);
    assert.equal((await use(server, begun)).status, 200);
  });

  it("rejects more while all are in use, and closes streams that only listen when the server drains", async () => {
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

  it("end a stream that only listens at once while the server drains", { timeout: 20_000 }, async () => {
    const server = await startMcp("node");
    after(() => server.stop());
    const { headers } = await open(server);
    const session = { "mcp-session-id": headers.get("mcp-session-id")! };
    server.mcp.drain();
    const listening = await fetch(server.url, { headers: { accept: "text/event-stream", ...session } });
    assert.equal(listening.status, 200);
    await listening.text();
    assert.equal((await post(server, list, session)).status, 200, "requests are still answered");
  });

  it("ends an unused session", async () => {
    const server = await startMcp("node", { sessionIdleMs: 500 });
    after(() => server.stop());
    const begun = await open(server);
    assert.equal((await use(server, begun)).status, 200);
    await sleep(1000);
    assert.equal((await use(server, begun)).status, 404);
  });

  it("keeps a shared session while it has an open stream", { timeout: 20_000 }, async () => {
    const store = new McpSessionStore(new TableStore(new MemoryTables(), mcpSessionLimits));
    const replicas = { ask: async () => [], answer: () => {} };
    const server = await startMcp("node", { sessionIdleMs: 600 }, undefined, null, { store, replicas });
    after(() => server.stop());
    const session = await sessionOf(server);
    const listening = await fetch(server.url, { headers: { accept: "text/event-stream", ...session } });
    let hasEnded = false;
    const stream = listening.text().finally(() => {
      hasEnded = true;
    });
    await sleep(2000);
    assert.equal((await post(server, list, session)).status, 200);
    assert.equal(hasEnded, false);
    server.mcp.drain();
    await stream;
    await sleep(2000);
    assert.equal((await post(server, list, session)).status, 404);
  });
});
