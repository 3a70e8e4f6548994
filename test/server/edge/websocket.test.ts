// Responses API over WebSocket on every HTTP front end: turns, continuation, errors, limits, and shutdown of the server.
import assert from "node:assert/strict";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import type { connect } from "node:net";
import { afterEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket } from "ws";
import { done, failure, finish, type Script, text } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges, startServer, type TestServer } from "../../fixtures/http-server.ts";
import { checkResponseStream } from "../../fixtures/responses-checker.ts";
import { SocketClient } from "../../fixtures/socket-client.ts";

const missingCall = [{ type: "function_call_output", call_id: "call_none", output: "42" }];

/** Responds to "wait" after the given time, and to everything else at once. */
function slow(waitMs: number): Script {
  return function* (request) {
    const isSlow = JSON.stringify(request.prompt).includes("wait");
    yield [text("Hello")];
    if (isSlow) yield { waitMs };
    yield [text(" world"), finish(), done];
  };
}

for (const edge of loadableEdges()) {
  describe(`responses over WebSocket on ${edge}`, () => {
    let server: TestServer;
    const start = async (options: Parameters<typeof startServer>[1] = {}) => {
      server = await startServer(edge, options);
    };
    const open = (headers?: Record<string, string>) => SocketClient.open(server.url, headers);
    const messages = () => {
      const { prompt } = server.inference.lastRun.request;
      assert.equal(prompt.kind, "chat");
      return prompt.messages.map(({ role, content }) => `${role}: ${content}`);
    };
    afterEach(() => server.stop());

    it("sends the events of the stream over HTTP as messages, one response after another", async () => {
      await start();
      const client = await open();
      for (const input of ["one", "two"]) {
        client.send({ input });
        const events = await client.turn();
        checkResponseStream(events);
        assert.equal(events.at(-1)?.response?.output_text, "Hello world");
      }
      const [stored] = client.events.filter(({ type }) => type === "response.completed");
      assert.equal((await fetch(`${server.url}/v1/responses/${stored?.response?.id}`)).status, 200);
      client.close();
      assert.equal((await client.ended()).code, 1005);
    });

    it("lists the fields that it ignores in the first event", async () => {
      await start();
      const client = await open();
      for (const [fields, ignored] of [
        [{ zebra: 1, reasoning: { stripes: 2 } }, "reasoning.stripes, zebra"],
        [{}, undefined],
      ] as const) {
        client.send({ input: "one", ...fields });
        const events = (await client.turn()) as readonly { readonly "x-ignored-fields"?: string }[];
        const listed = events[0]?.["x-ignored-fields"]?.split(", ").sort().join(", ");
        assert.equal(listed, ignored);
        assert.ok(events.slice(1).every((event) => !("x-ignored-fields" in event)));
      }
      client.close();
    });

    it("continues an unstored response with only the new input", async () => {
      await start();
      const client = await open();
      let previous: string | null = null;
      for (const input of ["one", "two", "three"]) {
        const { response } = await client.ask({ store: false, previous_response_id: previous, input });
        previous = response?.id ?? null;
      }
      assert.deepEqual(messages(), [
        "user: one",
        "assistant: Hello world",
        "user: two",
        "assistant: Hello world",
        "user: three",
      ]);
      assert.equal((await fetch(`${server.url}/v1/responses/${previous}`)).status, 404);
    });

    it("stores the conversation of a response that continues an unstored one", async () => {
      await start();
      const client = await open();
      const first = await client.ask({ store: false, input: "one" });
      const second = await client.ask({ previous_response_id: first.response?.id, input: "two" });
      const other = await open();
      await other.ask({ store: false, previous_response_id: second.response?.id, input: "three" });
      assert.equal(messages().length, 5);
    });

    it("forgets an unstored response when its connection closes, and goes on with a new one", async () => {
      await start();
      const client = await open();
      const { response } = await client.ask({ store: false, input: "one" });
      client.close();
      const next = await open();
      const refused = await next.ask({ store: false, previous_response_id: response?.id, input: "two" });
      assert.equal(refused.type, "error");
      assert.equal(refused.status, 404);
      assert.equal(refused.error?.code, "previous_response_not_found");
      assert.equal(refused.error?.param, "previous_response_id");
      assert.equal((await next.ask({ store: false, input: "whole" })).type, "response.completed");
    });

    it("forgets the previous response when a continuation fails", async () => {
      await start();
      const client = await open();
      const { response } = await client.ask({ store: false, input: "one" });
      const failed = await client.ask({ store: false, previous_response_id: response?.id, input: missingCall });
      assert.equal(failed.error?.code, "invalid_value");
      const retried = await client.ask({ store: false, previous_response_id: response?.id, input: "two" });
      assert.equal(retried.error?.code, "previous_response_not_found");
    });

    it("reports errors as messages and keeps the connection", async () => {
      await start();
      const client = await open();
      client.socket.send("{");
      assert.equal((await client.turn()).at(-1)?.error?.code, "invalid_json");
      client.socket.send(JSON.stringify({ input: "no type" }));
      assert.equal((await client.turn()).at(-1)?.error?.param, "type");
      assert.equal((await client.ask({ input: "x", background: true })).error?.param, "background");
      assert.equal((await client.ask({ input: "x", stream: false })).error?.param, "stream");
      assert.equal((await client.ask({ input: "x", model: "none" })).error?.code, "model_not_found");
      assert.equal((await client.ask({ input: "x", stream: true })).type, "response.completed");
    });

    it("ends a response with an error event and response.failed if its generation fails", async () => {
      await start({
        script: function* () {
          yield [text("Hel")];
          yield [failure("model_failed")];
        },
      });
      const client = await open();
      client.send({ input: "x", store: false });
      assert.equal((await client.turn()).at(-1)?.code, "model_failed");
      const [failed] = await client.turn();
      assert.equal(failed?.type, "response.failed");
      const retried = await client.ask({ previous_response_id: failed?.response?.id, store: false, input: "y" });
      assert.equal(retried.error?.code, "previous_response_not_found");
    });

    it("refuses a second response while one is in progress, and completes the first", async () => {
      await start({ script: slow(200) });
      const client = await open();
      client.send({ input: "wait" });
      assert.equal((await client.next())?.type, "response.created");
      client.send({ input: "two" });
      const error = (await client.turn()).at(-1);
      assert.equal(error?.error?.code, "conflict");
      assert.equal((await client.turn()).at(-1)?.type, "response.completed");
      assert.equal((await client.ask({ input: "two" })).type, "response.completed");
    });

    it("refuses a second response in the middle of a long event, and sends both messages whole", async () => {
      const long = "x".repeat(2 ** 22);
      await start({
        script: function* () {
          yield [text(long)];
          yield [finish(), done];
        },
      });
      const client = await open();
      client.send({ input: "one" });
      await receivedBytes(client.socket, 2 ** 17);
      client.send({ input: "two" });
      const events = [...(await client.turn()), ...(await client.turn())];
      const types = events.map(({ type }) => type);
      assert.ok(types.includes("response.completed") && types.includes("error"), types.join());
      assert.equal(events.find(({ type }) => type === "response.output_text.delta")?.delta, long);
      assert.equal(events.find(({ type }) => type === "error")?.error?.code, "conflict");
    });

    it("cancels the generation when the client disconnects", async () => {
      await start({ script: slow(10_000) });
      const client = await open();
      client.send({ input: "wait" });
      await client.next();
      client.socket.terminate();
      while (server.inference.lastRun.state === "running") await sleep(10);
      assert.equal(server.inference.lastRun.state, "cancelled");
    });

    it("stops the generation while the client does not read, and disconnects it after the limit", async () => {
      const long = "x".repeat(2 ** 16);
      await start({
        config: { readerStallMs: 300 },
        script: function* () {
          for (let i = 0; i < 10_000; i++) yield [text(long)];
          yield [finish(), done];
        },
      });
      const client = await open();
      client.socket.pause();
      client.send({ input: "x" });
      while (server.inference.runs.length === 0) await sleep(10);
      while (server.inference.lastRun.state === "running") await sleep(10);
      assert.ok(server.inference.lastRun.batchCount < 1000, "the generation ran ahead of its reader");
      assert.equal(server.inference.lastRun.state, "cancelled");
      client.socket.terminate();
    });

    it("sends a long event in parts and keeps its characters", async () => {
      const long = "€😀".repeat(60_000);
      await start({
        script: function* () {
          yield [text(long)];
          yield [finish(), done];
        },
      });
      const client = await open();
      const last = await client.ask({ input: "x", instructions: long });
      assert.equal(last.response?.output_text, long);
    });

    it("closes an idle connection", async () => {
      await start({ sockets: { idleMs: 150 }, script: slow(300) });
      const client = await open();
      assert.equal((await client.ask({ input: "wait" })).type, "response.completed");
      const { code, reason } = await client.ended();
      assert.equal(code, 1000);
      assert.match(reason, /no request/);
    });

    it("completes the response in progress when the lifetime ends, then says so and closes", async () => {
      await start({ sockets: { lifetimeMs: 150 }, script: slow(300) });
      const client = await open();
      assert.equal((await client.ask({ input: "wait" })).type, "response.completed");
      const last = await client.next();
      assert.equal(last?.error?.code, "websocket_connection_limit_reached");
      assert.equal((await client.ended()).code, 1000);
    });

    it("refuses more connections than max_websockets", async () => {
      await start({ sockets: { maxOpen: 1 } });
      const client = await open();
      assert.deepEqual(await refusalOf(server.url), [429, "queue_full"]);
      client.close();
      await client.ended();
      await sleep(50);
      (await open()).close();
    });

    it("checks host and origin of the handshake as of a request", async () => {
      await start({ config: { corsOrigins: ["https://chat.example"] } });
      assert.deepEqual(await refusalOf(server.url, { origin: "https://evil.example" }), [403, "forbidden"]);
      assert.deepEqual(await refusalOf(server.url, { host: "evil.example" }), [403, "forbidden"]);
      (await open({ origin: "https://chat.example" })).close();
    });

    it("sends the headers of a handshake to its own client only", async () => {
      await start();
      await requestIdsOf(server.url, { "x-request-id": "failed", "sec-websocket-protocol": "," });
      assert.equal(await requestIdsOf(server.url, { "x-request-id": "good" }), "good");
    });

    it("has WebSockets only at its path; elsewhere a handshake is an ordinary request", async () => {
      await start();
      assert.deepEqual(await refusalOf(server.url, {}, "/v1/nothing"), [404, "not_found"]);
      assert.deepEqual(await refusalOf(server.url, {}, "/v1/chat/completions"), [405, "method_not_allowed"]);
      const ordinary = await fetch(`${server.url}/v1/responses`);
      assert.equal(ordinary.status, 200);
      assert.equal(((await ordinary.json()) as { object: string }).object, "list");
    });

    it("responds over HTTP to a request that asks for another protocol, such as h2c", async () => {
      await start();
      const body = JSON.stringify({ input: "hi" });
      const headers = { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "content-type": "application/json" };
      const sent = httpRequest(`${server.url}/v1/responses`, { method: "POST", headers });
      sent.end(body);
      const [response] = await once(sent, "response");
      assert.equal(response.statusCode, 200);
      response.resume();
      await once(response, "end");
    });

    it("closes the connection for a message above the limit of a body, and for one that is not UTF-8", async () => {
      await start();
      for (const [size, isText] of [
        [50 * 2 ** 20 + 1, true],
        [2, false],
      ] as const) {
        const client = await open();
        if (isText) client.socket.send("x".repeat(size));
        else sendInvalidText(client.socket);
        assert.ok([1006, 1007, 1009].includes((await client.ended()).code));
      }
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
    });

    it("logs the handshake and each response", async () => {
      await start();
      const client = await open();
      await client.ask({ input: "hi" });
      await sleep(20);
      const lines = server.log.lines.filter(({ message }) => message === "request").map(({ fields }) => fields);
      assert.deepEqual(
        lines.map(({ method, path, transport, status }) => [method, path, transport, status]),
        [
          ["GET", "/v1/responses", undefined, 101],
          ["POST", "/v1/responses", "websocket", 200],
        ],
      );
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      assert.match(metrics, /http_requests_total\{[^}]*method="POST",path="\/v1\/responses"[^}]*status="200"\} 1/);
    });

    it("completes the response in progress when the server stops, and closes all connections", async () => {
      await start({ script: slow(200) });
      const [idle, busy] = [await open(), await open()];
      busy.send({ input: "wait" });
      await busy.next();
      server.app.drain();
      assert.equal((await idle.ask({ input: "late" })).error?.code, "draining");
      server.listener.close();
      assert.equal((await idle.ended()).code, 1001);
      assert.equal((await busy.turn()).at(-1)?.type, "response.completed");
      assert.equal((await busy.ended()).code, 1001);
      await server.listener.closed;
    });

    it("ends responses in progress when the server is forced to close", async () => {
      await start({ script: slow(10_000) });
      const client = await open();
      client.send({ input: "wait" });
      await client.next();
      await server.stop();
      await client.ended();
      assert.equal(server.inference.lastRun.state, "cancelled");
    });
  });
}

/** Returns the status and the error code with which a handshake is rejected. */
async function refusalOf(
  url: string,
  headers: Record<string, string> = {},
  path = "/v1/responses",
): Promise<[number, string]> {
  const socket = new WebSocket(url.replace("http", "ws") + path, { headers });
  socket.on("error", () => {});
  const [, response] = await once(socket, "unexpected-response");
  let body = "";
  for await (const chunk of response) body += chunk;
  socket.terminate();
  return [response.statusCode, JSON.parse(body).error.code];
}

/** Opens and closes a connection. Returns the request ids in the server's handshake; null if it rejected the handshake. */
async function requestIdsOf(url: string, headers: Record<string, string>): Promise<string | null> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/v1/responses`, { headers });
  let ids: string | null = null;
  socket.on("upgrade", (response) => {
    ids = `${response.headers["x-request-id"]}`;
  });
  socket.on("open", () => socket.terminate());
  socket.on("error", () => {});
  await new Promise((resolve) => socket.on("close", resolve));
  return ids;
}

/** Resolves when the client has received this many more bytes. */
async function receivedBytes(socket: WebSocket, count: number): Promise<void> {
  const { _socket: raw } = socket as unknown as { _socket: ReturnType<typeof connect> };
  const goal = raw.bytesRead + count;
  while (raw.bytesRead < goal) await once(raw, "data");
}

/** Sends a text frame whose bytes are not UTF-8. */
function sendInvalidText(socket: WebSocket): void {
  const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]);
  (socket as unknown as { _socket: ReturnType<typeof connect> })._socket.write(frame);
}
