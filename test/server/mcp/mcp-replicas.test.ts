// MCP sessions on three replicas that share a real Redis. The official client sends its requests to the replicas in turn.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StateClient } from "../../../actors/front/state-client.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import {
  initialize,
  list,
  type McpTestServer,
  messages,
  never,
  post,
  startMcp,
  until,
} from "../../fixtures/mcp-server.ts";
import { type RedisServer, startRedis } from "../../fixtures/store/redis.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";

const limits = { maxEntries: 100, maxBytes: 2 ** 24, maxEntryBytes: 2 ** 20, maxAgeMs: 1e9 };

describe("MCP sessions on several replicas", { skip: lacksRedis, timeout: 60_000 }, () => {
  let redis: RedisServer;
  const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-replicas-"));
  const states: StateClient[] = [];
  const servers: McpTestServer[] = [];
  const at = (index: number): McpTestServer => servers[index] as McpTestServer;

  async function start(index: number): Promise<void> {
    const shared = { url: redis.url, replica: `replica-${index}`, leaseMs: 5000 };
    const places = { folder: join(folder, String(index)), mailboxLimit: 1000, responses: limits };
    const init = { ...places, maxFileContentBytes: 2 ** 20, skillsFolder: null, shared };
    const state = new StateClient({ init, log: recordingLog() as never });
    await state.start();
    states.push(state);
    const { mcpSessions: store, replicas } = state;
    assert.ok(store !== null && replicas !== null);
    servers.push(await startMcp("node", { sessionIdleMs: 4000 }, undefined, null, { store, replicas }));
  }

  before(async () => {
    redis = await startRedis();
    for (const index of [0, 1, 2]) await start(index);
  });
  after(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await Promise.all(states.map((state) => state.stop(1000)));
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Connects the official client. Its requests go to the replicas in turn, or in the given `order`. */
  async function connected(
    order: number[] = [],
  ): Promise<{ client: Client; transport: StreamableHTTPClientTransport }> {
    let next = 0;
    const transport = new StreamableHTTPClientTransport(new URL(at(0).url), {
      fetch: (url, init) => {
        const { port } = new URL(at(order.shift() ?? next++ % servers.length).url);
        const address = new URL(url);
        address.port = port;
        return fetch(address, init);
      },
    });
    const client = new Client({ name: "test", version: "1" });
    await client.connect(transport);
    return { client, transport };
  }

  it("serve the official client whose requests go round, and end on all", async () => {
    const { client, transport } = await connected();
    const id = transport.sessionId ?? "";
    for (let i = 0; i < 9; i++) {
      assert.equal((await client.listTools()).tools.length, 2);
      const result = await client.callTool({ name: "chat", arguments: { messages } });
      assert.equal(result.isError ?? false, false);
    }
    assert.equal(transport.sessionId, id, "one session");
    for (const { inference } of servers) assert.ok(inference.runs.length >= 2, "each replica has answered");
    await transport.terminateSession();
    for (const server of servers) {
      const reply = await post(server, list, { "mcp-session-id": id });
      assert.equal(reply.status, 404);
    }
    await client.close();
  });

  it("cancel a call that runs on another replica", async () => {
    at(0).inference.script = never;
    const begun = await post(at(1), initialize);
    const session = { "mcp-session-id": begun.headers.get("mcp-session-id") ?? "" };
    const running = at(0).nextRun();
    const call = { jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "chat", arguments: { messages } } };
    const reply = post(at(0), call, session);
    const run = await running;
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } };
    assert.equal((await post(at(2), cancel, session)).status, 202);
    await reply;
    await until(() => run.state === "cancelled");
  });

  it("expire when idle, stay while any replica uses them, and continue on replicas that have them open if Redis is lost", async () => {
    const begun = await post(at(0), initialize);
    const session = { "mcp-session-id": begun.headers.get("mcp-session-id") ?? "" };
    for (let i = 0; i < 6; i++) {
      await sleep(1000);
      assert.equal((await post(at(i % 2), list, session)).status, 200);
    }
    const resting = await post(at(0), initialize);
    await redis.kill();
    assert.equal((await post(at(0), list, session)).status, 200);
    assert.equal((await post(at(2), list, session)).status, 503);
    assert.equal((await post(at(2), initialize)).status, 503);
    assert.equal((await post(at(0), { ...list, method: "tools/list" })).status, 200, "without a session");
    await redis.start();
    await sleep(500);
    // Redis has lost its data at this point.
    const rested = { "mcp-session-id": resting.headers.get("mcp-session-id") ?? "" };
    assert.equal((await post(at(1), list, rested)).status, 404);
  });
});
