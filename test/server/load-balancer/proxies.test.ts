// Proxy configurations of deploy/ for nginx, HAProxy and Envoy, tested with the real programs in front of two servers. Envoy is
// tested only if the variable ENVOY gives its path.
import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket } from "ws";
import { done, finish, type Step, text } from "../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../fixtures/http-server.ts";
import { lacksProxy, type RunningProxy, startProxy } from "../../fixtures/proxy/proxy.ts";
import { jsonBody } from "../replicas/rig.ts";

const AFFINITY = "x-session-affinity";
const KEYS = Array.from({ length: 24 }, (_, i) => `conversation ${i}`);
const GAP_MS = 150;

/** Script: outputs the name of the server, waits, and ends. */
const script = (name: string) =>
  function* (): Iterable<Step> {
    yield [text(name)];
    yield { waitMs: GAP_MS };
    yield [text("."), finish(), done];
  };

for (const name of ["nginx", "haproxy", "envoy"] as const) {
  describe(`two servers behind ${name}`, { skip: lacksProxy(name), timeout: 60_000 }, () => {
    let servers: readonly TestServer[] = [];
    let proxy: RunningProxy;

    before(async () => {
      servers = await Promise.all(
        ["first", "second"].map((said) => startServer("node", { script: script(said), trustedProxies: ["127.0.0.1"] })),
      );
      proxy = await startProxy(
        name,
        servers.map(({ listener }) => listener.port),
      );
      // Health checks run once a second.
      await sleep(1500);
    });
    after(async () => {
      await proxy?.stop();
      await Promise.all(servers.map((server) => server.stop()));
    });

    /** Sends a request with this affinity key. Returns the name of the server that responded, and the affinity header of its response. */
    const ask = async (key: string | null): Promise<{ readonly server: string; readonly affinity: string | null }> => {
      const init = jsonBody({ messages: "hi" });
      const headers = { ...init.headers, ...(key === null ? {} : { [AFFINITY]: key }) };
      const reply = await fetch(`${proxy.url}/v1/chat/completions`, { ...init, headers });
      const body = (await reply.json()) as { choices: readonly [{ message: { content: string } }] };
      assert.equal(reply.status, 200, JSON.stringify(body));
      return { server: body.choices[0].message.content, affinity: reply.headers.get(AFFINITY) };
    };

    it("sends requests with the same header to the same server, and returns the header", async () => {
      const first = await Promise.all(KEYS.map(ask));
      assert.deepEqual(
        first.map(({ affinity }) => affinity),
        KEYS,
      );
      assert.deepEqual([...new Set(first.map(({ server }) => server))].sort(), ["first.", "second."]);
      // Requests are sent one after another. If many ran at once, a proxy that limits the load per server would send some to
      // the other server.
      for (const [i, key] of KEYS.slice(0, 3).entries()) {
        const alone = await ask(key);
        assert.deepEqual(await ask(key), alone, `key ${i}`);
      }
    });

    it("gives a client without the header a value that keeps it on its server", async () => {
      const { server, affinity } = await ask(null);
      assert.ok(affinity);
      assert.deepEqual(await ask(affinity), { server, affinity });
      assert.deepEqual(await ask(null), { server, affinity });
    });

    it("forwards a stream without buffering", async () => {
      const reply = await fetch(`${proxy.url}/v1/chat/completions`, jsonBody({ messages: "hi", stream: true }));
      const times: number[] = [];
      for await (const piece of reply.body as unknown as AsyncIterable<Uint8Array>) {
        if (piece.length > 0) times.push(performance.now());
      }
      assert.ok((times.at(-1) ?? 0) - (times[0] ?? 0) > GAP_MS / 2, `${times}`);
    });

    it("forwards WebSocket connections", async () => {
      const socket = new WebSocket(`${proxy.url.replace("http", "ws")}/v1/responses`);
      await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
      socket.send(JSON.stringify({ type: "response.create", input: "hi" }));
      const said = await new Promise((resolve, reject) => {
        socket.on("message", (data) => {
          if (`${data}`.includes("response.completed")) resolve(`${data}`);
        });
        socket.once("close", reject);
      });
      assert.match(String(said), /(first|second)\./);
      socket.terminate();
    });

    it("forwards the errors of a server, with their headers", async () => {
      const reply = await fetch(`${proxy.url}/v1/responses/resp_unknown`);
      assert.equal(reply.status, 404);
      assert.match(await reply.text(), /resp_unknown/);
    });

    it("tells the servers the addresses of its clients, whatever a client itself forwards", async () => {
      for (const localAddress of ["127.0.0.7", "127.0.0.8"]) {
        const request = get(`${proxy.url}/v1/models`, { localAddress, headers: { "x-forwarded-for": "192.0.2.1" } });
        const [reply] = (await once(request, "response")) as [IncomingMessage];
        reply.resume();
        await once(reply, "end");
        const lines = servers.flatMap(({ log }) => log.lines);
        assert.ok(
          lines.some(({ fields }) => fields.address === localAddress),
          `${localAddress}: ${JSON.stringify(lines.at(-1))}`,
        );
      }
    });

    it("sends all requests to the other server when one stops, without an error", async () => {
      const [first] = servers;
      first?.app.retire();
      void first?.listener.retire();
      const before = Promise.all(KEYS.map(ask));
      await sleep(2500);
      await before;
      first?.listener.close();
      const replies = await Promise.all(KEYS.map(ask));
      for (const { server } of replies) assert.equal(server, "second.");
    });
  });
}
