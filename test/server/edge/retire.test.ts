// Retirement of a server that another server replaces, on each HTTP server implementation ("edge"): last requests on open
// connections, and a shared port.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { HttpReply, HttpRequest } from "../../../http/server/edge.ts";
import { type EdgeName, listen } from "../../../http/server/listen.ts";
import { loadableEdges, recordingLog, startServer, type TestServer } from "../../fixtures/http-server.ts";

function post(server: TestServer): Promise<Response> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ messages: "hi", stream: true });
  return fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers, body });
}

/** Whether this Node.js can share a port with node:http. */
const canShare = (edge: EdgeName): boolean =>
  process.platform === "linux" && (edge !== "node" || Number(process.versions.node.split(".")[0]) >= 23);

for (const edge of loadableEdges()) {
  describe(`a server that retires on the ${edge} edge`, () => {
    it("serves last requests after retire(), whose connections it closes, and is not ready", async () => {
      const server = await startServer(edge);
      assert.equal((await fetch(`${server.url}/ready`)).status, 200);
      server.app.retire();
      void server.listener.retire();
      const ready = await fetch(`${server.url}/ready`);
      assert.deepEqual([ready.status, await ready.text()], [503, "the server is shutting down"]);
      assert.equal(ready.headers.get("connection"), "close");
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
      const stream = await post(server);
      assert.deepEqual([stream.status, stream.headers.get("connection")], [200, "close"]);
      assert.ok((await stream.text()).endsWith("data: [DONE]\n\n"));
      await server.stop();
    });

    it("shares its port with the next server, if allowed", { skip: !canShare(edge) }, async () => {
      const app = (name: string) => ({
        handle: (_: HttpRequest, reply: HttpReply) => reply.send(200, {}, name),
      });
      const open = (name: string, port: number, sharesPort: boolean) =>
        listen(app(name), { host: "127.0.0.1", port, edge, sharesPort, log: recordingLog() });
      const first = await open("first", 0, true);
      await assert.rejects(open("other", first.port, false), /is already in use/);
      const second = await open("second", first.port, true);
      const ask = async () =>
        (await fetch(`http://127.0.0.1:${first.port}/`, { headers: { connection: "close" } })).text();
      const names = new Set<string>();
      for (let i = 0; names.size < 2 && i < 200; i++) names.add(await ask());
      assert.deepEqual([...names].sort(), ["first", "second"]);
      void first.retire();
      await sleep(50);
      for (let i = 0; i < 30; i++) assert.equal(await ask(), "second");
      for (const one of [first, second]) one.forceClose();
      await Promise.all([first.closed, second.closed]);
    });

    it("refuses to share its port if it cannot", { skip: edge !== "node" || canShare(edge) }, async () => {
      await assert.rejects(
        listen({ handle: () => {} }, { host: "127.0.0.1", port: 0, edge, sharesPort: true, log: recordingLog() }),
        /reuse_port with the edge "node" needs Node.js 22.12/,
      );
    });
  });
}
