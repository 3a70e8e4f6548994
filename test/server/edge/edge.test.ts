// Edge conformance: all HTTP server implementations ("edges") behave alike on a real socket: streams, aborts, back
// pressure, limits, closing.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MAX_BODY_BYTES } from "../../../http/server/body.ts";
import type { EdgeHandler } from "../../../http/server/edge.ts";
import { type EdgeName, listen } from "../../../http/server/listen.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { done, failure, finish, type Step, text } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges, recordingLog, startServer, type TestServer } from "../../fixtures/http-server.ts";

const chat = "/v1/chat/completions";

/** Waits until `condition` holds; fails after two seconds. */
async function until(condition: () => boolean, what: string): Promise<void> {
  for (let tries = 0; !condition(); tries++) {
    if (tries > 400) assert.fail(`still not so after 2 s: ${what}`);
    await sleep(5);
  }
}

/** Waits until a count has stopped growing. */
async function settled(count: () => number): Promise<void> {
  for (let before = -1; before !== count(); await sleep(20)) before = count();
}

function post(server: TestServer, body: object, signal?: AbortSignal): Promise<Response> {
  return fetch(server.url + chat, {
    method: "POST",
    body: JSON.stringify({ messages: "hi", ...body }),
    headers: { "content-type": "application/json" },
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Opens a raw connection that collects everything received. */
function open(server: TestServer): { readonly socket: Socket; received: () => string; readonly ended: Promise<void> } {
  const socket = connect(server.listener.port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk));
  socket.on("error", () => {});
  const ended = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  return { socket, received: () => Buffer.concat(chunks).toString(), ended };
}

/** Sends bytes unchanged. Returns the text of the first response as soon as `isWhole` accepts it. */
async function raw(
  server: TestServer,
  bytes: string,
  isWhole: (text: string) => boolean = (text) => text.includes("\r\n\r\n"),
) {
  const { socket, received } = open(server);
  socket.write(bytes);
  await until(() => isWhole(received()) || socket.destroyed, `an answer to ${bytes.slice(0, 60)}`);
  socket.destroy();
  return received();
}

function head(method: string, path: string, headers = ""): string {
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`;
}

function rawStream(body: object): string {
  const json = JSON.stringify({ messages: "hi", stream: true, ...body });
  return `${head("POST", chat, `Content-Type: application/json\r\nContent-Length: ${json.length}\r\n`)}${json}`;
}

/** Endless text in batches of about 16 KiB, with occasional pauses so that other work can run. */
function* flood(batchCount: number): Iterable<Step> {
  const piece = "x".repeat(16 * 1024);
  for (let i = 0; i < batchCount; i++) {
    if (i % 16 === 0) yield { waitMs: 0 };
    yield [text(piece)];
  }
  yield [finish(), done];
}

for (const edge of loadableEdges()) {
  describe(`streams on the ${edge} edge`, async () => {
    const server = await startServer(edge);
    after(() => server.stop());

    it("sends a complete stream: role, text, finish with usage, [DONE]", async () => {
      server.inference.script = function* () {
        yield [text("Hé")];
        yield [text('"\n'), text("🙂")];
        yield [finish("length"), done];
      };
      const reply = await post(server, { stream: true });
      assert.equal(reply.headers.get("content-type"), "text/event-stream");
      const constant =
        '"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny","system_fingerprint":"local"';
      const chunk = (rest: string) => `data: {${constant},"choices":[{"index":0,${rest}}\n\n`;
      const usage =
        '"usage":{"prompt_tokens":8,"completion_tokens":4,"total_tokens":12,' +
        '"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":0},"avg_tok_per_sec":4,"avg_prompt_tok_per_sec":16,' +
        '"avg_compl_tok_per_sec":2,"total_time_sec":3,"total_prompt_time_sec":0.5,"total_completion_time_sec":2}';
      assert.equal(
        (await reply.text()).replaceAll(/chatcmpl-[0-9a-f]{24}/g, "ID").replaceAll(/"created":\d+/g, '"created":0'),
        chunk('"delta":{"role":"assistant","content":"Hé"},"logprobs":null,"finish_reason":null}]') +
          chunk('"delta":{"content":"\\"\\n"},"logprobs":null,"finish_reason":null}]') +
          chunk('"delta":{"content":"🙂"},"logprobs":null,"finish_reason":null}]') +
          chunk(`"delta":{},"logprobs":null,"finish_reason":"length"}],${usage}`) +
          "data: [DONE]\n\n",
      );
    });

    for (const stream of [true, false]) {
      it(`cancels the generation when the client of a ${stream ? "stream" : "whole answer"} disconnects`, async () => {
        server.inference.script = function* () {
          yield [text("a")];
          yield { waitMs: 60_000 };
        };
        const aborter = new AbortController();
        const runs = server.inference.runs.length;
        const pending = post(server, { stream }, aborter.signal).then((reply) => reply.text());
        pending.catch(() => {});
        await until(() => server.inference.runs.length > runs && server.inference.lastRun.batchCount === 1, "started");
        aborter.abort();
        await until(() => server.inference.lastRun.state === "cancelled", "cancelled");
      });
    }

    it("a stalled reader pauses only its own stream, and gets everything when it resumes", async () => {
      server.inference.script = (request) => flood(request.maxTokens!);
      const slow = open(server);
      slow.socket.pause();
      slow.socket.write(rawStream({ max_tokens: 2000 }));
      await until(() => server.inference.runs.at(-1)?.request.maxTokens === 2000, "the slow stream started");
      const run = server.inference.lastRun;
      const quick = await (await post(server, { stream: true, max_tokens: 100 })).text();
      assert.ok(quick.endsWith("data: [DONE]\n\n"));
      await settled(() => run.batchCount);
      const standing = run.batchCount;
      await sleep(100);
      assert.equal(run.batchCount, standing);
      assert.ok(standing < 1000, `${standing} of 2000 batches were taken for a reader that reads nothing`);
      slow.socket.resume();
      await until(() => slow.received().includes("data: [DONE]"), "the slow stream ended");
      assert.equal(slow.received().split('"content":"xxx').length - 1, 2000);
      slow.socket.destroy();
    });

    it("sends an error before the first event with its status and Retry-After", async () => {
      server.inference.script = () => [[failure("queue_full", "32 requests wait already")]];
      const reply = await post(server, { stream: true });
      assert.equal(reply.status, 429);
      assert.equal(reply.headers.get("retry-after"), "1");
      assert.deepEqual(await reply.json(), {
        error: { message: "32 requests wait already", type: "rate_limit_error", param: null, code: "queue_full" },
      });
    });

    it("sends an error after the first event in the stream, then [DONE]", async () => {
      server.inference.script = () => [[text("a")], [failure("model_failed", "the engine died")]];
      const reply = await post(server, { stream: true });
      assert.equal(reply.status, 200);
      const events = (await reply.text()).trimEnd().split("\n\n");
      assert.deepEqual(events.slice(1), [
        'data: {"error":{"message":"the engine died","type":"server_error","param":null,"code":"model_failed"}}',
        "data: [DONE]",
      ]);
    });
  });

  describe(`keep-alive on the ${edge} edge`, async () => {
    const server = await startServer(edge, { config: { keepAliveMs: 20, readerStallMs: 150 } });
    after(() => server.stop());

    it("sends comments while a stream is silent, also before its first event", async () => {
      server.inference.script = () => [{ waitMs: 50 }, [text("a")], { waitMs: 50 }, [finish(), done]];
      const reply = await post(server, { stream: true });
      assert.match(
        await reply.text(),
        /^(: keep-alive\n\n)+data: \{.*\n\n(: keep-alive\n\n)+data: \{.*\n\ndata: \[DONE\]\n\n$/,
      );
    });

    it("after a comment, an error can only come in the stream", async () => {
      server.inference.script = () => [{ waitMs: 50 }, [failure("timeout")]];
      const reply = await post(server, { stream: true });
      assert.equal(reply.status, 200);
      assert.match(
        await reply.text(),
        /^(: keep-alive\n\n)+data: \{"error":.*"code":"timeout"\}\}\n\ndata: \[DONE\]\n\n$/,
      );
    });

    it("cuts off a reader that stays stalled, which cancels its generation", async () => {
      server.inference.script = () => flood(100_000);
      const { socket } = open(server);
      socket.pause();
      socket.write(rawStream({}));
      await until(() => server.inference.lastRun.state === "cancelled", "cancelled");
      assert.ok(server.inference.lastRun.batchCount < 1000);
      socket.destroy();
    });
  });

  describe(`requests on the ${edge} edge`, async () => {
    const server = await startServer(edge);
    after(() => server.stop());

    it("rejects a body over the limit by its Content-Length, before it is sent", async () => {
      const headers = `Content-Type: application/json\r\nContent-Length: ${MAX_BODY_BYTES + 1}\r\n`;
      const answer = await raw(server, head("POST", chat, headers), (text) => text.includes("}}"));
      assert.match(answer, /^HTTP\/1.1 413 .*"code":"body_too_large"/s);
    });

    it("accepts a chunked body at the limit, and rejects one byte more", async () => {
      const send = async (bytes: number) => {
        const padding = MAX_BODY_BYTES - '{"messages":"hi","user":""}'.length;
        const body = `{"messages":"hi","user":"${"x".repeat(padding)}"}${" ".repeat(bytes - MAX_BODY_BYTES)}`;
        const stream = new Blob([body]).stream();
        const init = { method: "POST", body: stream, duplex: "half", headers: { "content-type": "application/json" } };
        const reply = await fetch(server.url + chat, init as RequestInit);
        return { status: reply.status, text: await reply.text() };
      };
      assert.equal((await send(MAX_BODY_BYTES)).status, 200);
      const refused = await send(MAX_BODY_BYTES + 1);
      assert.equal(refused.status, 413);
      assert.match(refused.text, /"code":"body_too_large"/);
    });

    it("reads a body that comes in small pieces", async () => {
      const { socket, received } = open(server);
      for (const piece of rawStream({}).match(/.{1,40}/gs)!) {
        socket.write(piece);
        await sleep(1);
      }
      await until(() => received().includes("[DONE]"), "the answer");
      socket.destroy();
    });

    it("drops a request whose client disconnects in the middle of the body", async () => {
      const runs = server.inference.runs.length;
      const { socket, ended } = open(server);
      socket.write(rawStream({}).slice(0, -5));
      await sleep(30);
      socket.destroy();
      await ended;
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
      assert.equal(server.inference.runs.length, runs);
    });

    const paths: readonly (readonly [method: string, path: string, status: number])[] = [
      ["GET", "/health", 200],
      ["GET", "/", 200],
      ["GET", "/?a=b", 200],
      ["GET", "/health?", 200],
      ["GET", "/v1/models?x=%zz", 200],
      ["HEAD", "/health", 200],
      ["GET", "/health/", 404],
      ["GET", "//health", 404],
      ["GET", "/%68ealth", 404],
      ["GET", "/v1/chat/completions/../models", 404],
      ["GET", `/${"a".repeat(2000)}`, 404],
      ["GET", "/__proto__", 404],
      ["GET", "/constructor", 404],
      ["POST", "/health", 405],
      ["GET", chat, 405],
      ["DELETE", "/v1/models", 405],
      ["OPTIONS", chat, 204],
    ];
    for (const [method, path, status] of paths) {
      it(`answers ${method} ${path.slice(0, 40)} with ${status}`, async () => {
        const answer = await raw(server, head(method, path));
        assert.ok(answer.startsWith(`HTTP/1.1 ${status} `), answer.slice(0, 100));
      });
    }

    // The tests of uws-compat cover only these methods. On a less common method, uws-compat closes the connection
    // before it calls any code of the server.
    const otherMethods = ["PATCH", "TRACE", "CONNECT"];
    if (edge !== "uws-compat") otherMethods.push("PROPFIND", "QUERY", "BREW", "VERSION-CONTROL", "X_Y");
    for (const method of otherMethods) {
      it(`answers the method ${method} with 405 and Allow, and an unknown path with 404`, async () => {
        const answer = await raw(server, head(method, "/v1/models"));
        assert.match(answer, /^HTTP\/1.1 405 /);
        assert.match(answer, /^allow: GET, HEAD, OPTIONS\r$/im);
        assert.match(answer, /"code":"method_not_allowed"/);
        assert.match(await raw(server, head(method, "/nothing")), /^HTTP\/1.1 404 /);
        const body = "Content-Length: 2\r\n";
        assert.match(await raw(server, `${head(method, "/v1/models", body)}{}`), /^HTTP\/1.1 405 /);
      });

      it(`answers the method ${method} on a connection that was used before`, async () => {
        const { socket, ended } = open(server);
        socket.write(head("GET", "/health"));
        await once(socket, "data");
        socket.write(head(method, "/v1/models"));
        const [answer] = await once(socket, "data");
        assert.match(String(answer), /^HTTP\/1.1 405 /);
        socket.destroy();
        await ended;
      });
    }

    it("names the methods of a path in Allow", async () => {
      const reply = await fetch(`${server.url}/v1/models`, { method: "DELETE" });
      assert.equal(reply.headers.get("allow"), "GET, HEAD, OPTIONS");
    });

    it("keeps a connection usable after HEAD, after 204 and after an error", async () => {
      const requests = [head("HEAD", "/health"), head("OPTIONS", "/"), head("GET", "/nothing"), head("GET", "/health")];
      const answer = await raw(server, requests.join(""), (text) => text.endsWith("OK"));
      assert.deepEqual(
        [...answer.matchAll(/HTTP\/1.1 (\d+)/g)].map((match) => match[1]),
        ["200", "204", "404", "200"],
      );
    });

    it("survives requests that are not HTTP", async () => {
      for (const bytes of ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", head("POST", chat, "Content-Length: -1\r\n")]) {
        const { socket, ended } = open(server);
        socket.end(bytes);
        await ended;
      }
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
    });

    it("answers a preflight for any origin", async () => {
      const reply = await fetch(server.url + chat, {
        method: "OPTIONS",
        headers: { origin: "https://a.example", "access-control-request-method": "POST" },
      });
      assert.equal(reply.status, 204);
      assert.equal(reply.headers.get("access-control-allow-origin"), "*");
      assert.equal(reply.headers.get("access-control-allow-methods"), "GET, POST, PUT, DELETE");
      // Clients send headers of their own too, such as OpenAI-Organization. The wildcard does not include Authorization.
      const allowed = "Content-Type, Authorization, x-api-key, alt-version, alt-beta, x-request-id, *";
      assert.equal(reply.headers.get("access-control-allow-headers"), allowed);
    });

    it("echoes a valid x-request-id and replaces an invalid one", async () => {
      const echoed = async (id: string) =>
        /x-request-id: (.*)\r/.exec(await raw(server, head("GET", "/", `X-Request-Id: ${id}\r\n`)))![1];
      assert.equal(await echoed("abc 123!~"), "abc 123!~");
      for (const id of ["x".repeat(129), ""]) assert.match((await echoed(id))!, /^[0-9a-f-]{36}$/);
    });

    it("logs one line per request, with the model, and none for health checks", async () => {
      server.inference.script = () => [[text("a")], [finish(), done]];
      server.log.lines.length = 0;
      await raw(server, head("GET", "/health"));
      const reply = await post(server, { stream: true });
      const size = (await reply.text()).length;
      await until(() => server.log.lines.length > 0, "a log line");
      const [line, ...others] = server.log.lines;
      assert.equal(others.length, 0);
      const { durationMs, requestBytes, ...fields } = line!.fields;
      assert.ok(typeof durationMs === "number" && typeof requestBytes === "number" && requestBytes > 10);
      assert.deepEqual(fields, {
        method: "POST",
        path: chat,
        status: 200,
        bytes: size,
        address: "127.0.0.1",
        requestId: reply.headers.get("x-request-id"),
        model: "tiny",
        promptTokens: 8,
        completionTokens: 4,
        firstTokenMs: 0,
      });
    });
  });

  describe(`the memory of bodies on the ${edge} edge`, () => {
    const limit = 2 ** 20;
    const large = JSON.stringify({ messages: "hi", stream: true, metadata: { padding: "x".repeat(0.9 * limit) } });

    async function serve() {
      const { app, inference, ...server } = await startServer(edge, {
        script: () => [[text("a")], { waitMs: 60_000 }],
      });
      const log = recordingLog();
      const listener = await listen(app, { host: "127.0.0.1", port: 0, edge, log, maxBodyBytesInFlight: limit });
      const ask = (body: string) => {
        const headers = { "content-type": "application/json" };
        return fetch(`http://127.0.0.1:${listener.port}${chat}`, { method: "POST", body, headers });
      };
      const stop = async () => {
        listener.forceClose();
        await listener.closed;
        await server.stop();
      };
      return { ask, inference, stop, port: listener.port };
    }

    it("is free for others once a prompt is prepared, however long its response takes", async () => {
      const { ask, stop } = await serve();
      const answers: Response[] = [];
      for (let i = 0; i < 4; i++) answers.push(await ask(large));
      await stop();
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200, 200, 200],
      );
    });

    it("is held by the received part of a large body, until its prompt is prepared", async () => {
      const { ask, inference, stop } = await serve();
      const text = JSON.stringify({ messages: "x".repeat(0.9 * limit), stream: true });
      let prepare = () => {};
      inference.preparation = new Promise<void>((resolve) => {
        prepare = resolve;
      });
      const first = ask(text);
      await until(() => inference.runs.length === 1, "started");
      const second = await ask(text);
      const short = ask(JSON.stringify({ messages: "hi", stream: true }));
      await until(() => inference.runs.length === 2, "started beside it");
      prepare();
      await first;
      const third = await ask(text);
      const answers = [await first, second, await short, third];
      await stop();
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 429, 200, 200],
      );
    });

    it("is held while a text worker reads a body, even if its client has disconnected", async () => {
      const { ask, inference, stop, port } = await serve();
      let read = () => {};
      inference.translation = new Promise<void>((resolve) => {
        read = resolve;
      });
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write(head("POST", chat, `Content-Type: application/json\r\nContent-Length: ${large.length}\r\n`));
      socket.write(large);
      await sleep(100);
      socket.destroy();
      await sleep(100);
      const held = (await ask(large)).status;
      read();
      inference.translation = null;
      await sleep(50);
      const after = (await ask(large)).status;
      await stop();
      assert.deepEqual([held, after], [429, 200]);
    });

    it("is free for others when a client disconnects in the middle of a body, or the body is not JSON", async () => {
      const { ask, stop, port } = await serve();
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write(head("POST", chat, `Content-Type: application/json\r\nContent-Length: ${large.length}\r\n`));
      socket.write(large.slice(0, -1));
      await sleep(100);
      assert.equal((await ask(large)).status, 429);
      socket.destroy();
      await sleep(100);
      for (let i = 0; i < 3; i++) assert.equal((await ask(`[${large}`)).status, 400);
      assert.equal((await ask(large)).status, 200);
      await stop();
    });

    it("is counted in the metrics and the log as received", async () => {
      const server = await startServer(edge);
      const body = JSON.stringify({ messages: "hi" });
      await (await post(server, {})).text();
      await until(() => server.log.lines.length > 1, "a log line");
      assert.equal(server.log.lines.at(-1)?.fields.requestBytes, body.length);
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      assert.match(metrics, new RegExp(`http_request_body_bytes_sum\\{.*\\} ${body.length}\n`));
      await server.stop();
    });
  });

  describe(`pipelined requests on the ${edge} edge`, () => {
    it("are all cancelled when their connection closes, including those still waiting", async () => {
      const server = await startServer(edge, { script: () => [[text("a")], { waitMs: 60_000 }] });
      const { socket } = open(server);
      socket.write(rawStream({}) + rawStream({}));
      await until(() => server.inference.runs.length > 0, "started");
      await sleep(50);
      socket.destroy();
      await until(() => server.inference.runs.every(({ state }) => state === "cancelled"), "cancelled");
      server.listener.close();
      await server.listener.closed;
    });
  });

  describe(`closing on the ${edge} edge`, () => {
    const refusesConnections = (server: TestServer) =>
      new Promise<boolean>((resolve) => {
        const socket = connect(server.listener.port, "127.0.0.1");
        socket.on("connect", () => socket.destroy(new Error("connected")));
        socket.on("error", (error) => resolve(error.message !== "connected"));
      });

    it("accepts no new connections, lets running requests end, and does not wait for idle connections", async () => {
      const server = await startServer(edge, { script: () => [[text("a")], { waitMs: 100 }, [finish(), done]] });
      const idle = open(server);
      idle.socket.write(head("GET", "/health"));
      await until(() => idle.received().includes("OK"), "an idle connection");
      const reply = await post(server, { stream: true });
      server.app.drain();
      server.listener.close();
      let isClosed = false;
      void server.listener.closed.then(() => {
        isClosed = true;
      });
      assert.ok(await refusesConnections(server));
      assert.equal(isClosed, false);
      assert.ok((await reply.text()).endsWith("data: [DONE]\n\n"));
      await server.listener.closed;
      await idle.ended;
    });

    it("forceClose closes running requests and cancels them", async () => {
      const server = await startServer(edge, { script: () => [[text("a")], { waitMs: 60_000 }] });
      const reply = await post(server, { stream: true });
      server.listener.forceClose();
      await assert.rejects(reply.text());
      await server.listener.closed;
      await until(() => server.inference.lastRun.state === "cancelled", "cancelled");
    });

    it("refuses new inference while draining, and stays healthy", async () => {
      const server = await startServer(edge);
      server.app.drain();
      const reply = await post(server, {});
      assert.equal(reply.status, 503);
      assert.equal(reply.headers.get("retry-after"), "5");
      assert.equal(((await reply.json()) as { error: { code: string } }).error.code, "draining");
      assert.equal((await fetch(`${server.url}/health`)).status, 200);
      await server.stop();
    });
  });

  describe(`listening on the ${edge} edge`, () => {
    const listenOn = (host: string, port: number, name: EdgeName = edge) =>
      listen({ handle: () => {} }, { host, port, edge: name, log: recordingLog() });

    it("reports that the port is in use, whichever edge uses it", async () => {
      const first = await listenOn("127.0.0.1", 0);
      for (const name of loadableEdges()) {
        await assert.rejects(listenOn("127.0.0.1", first.port, name), (error: ServerError) => {
          assert.equal(error.code, "config_invalid");
          assert.equal(error.param, "port");
          assert.equal(error.message.split(";")[0], `127.0.0.1:${first.port} is already in use`);
          return true;
        });
      }
      first.close();
      await first.closed;
    });

    it("reports that the host is not an address of this machine", async () => {
      await assert.rejects(listenOn("192.0.2.1", 0), (error: ServerError) => {
        assert.equal(error.param, "host");
        assert.match(error.message, /is not an address of this machine/);
        return true;
      });
    });
  });

  describe(`clients of a proxy on the ${edge} edge`, () => {
    const forwarded = { "x-forwarded-for": "203.0.113.1, 192.0.2.7" };

    async function addressOf(host: string, trustedProxies: readonly string[]) {
      const log = recordingLog();
      const handle: EdgeHandler = (request, reply) => reply.send(200, {}, request.address);
      const listener = await listen({ handle }, { host, port: 0, edge, log, trustedProxies });
      const address = host.includes(":") ? `[${host}]` : host;
      const ask = (method: string) => fetch(`http://${address}:${listener.port}/`, { method, headers: forwarded });
      const addresses = [await (await ask("GET")).text(), await (await ask("POST")).text()];
      listener.forceClose();
      await listener.closed;
      return { addresses, warnings: log.lines.filter(({ level }) => level === "warn") };
    }

    it("have their own addresses if the proxy is trusted", async () => {
      for (const host of ["127.0.0.1", "::1"]) {
        const { addresses, warnings } = await addressOf(host, ["127.0.0.0/8", "::1"]);
        assert.deepEqual([addresses, warnings], [["192.0.2.7", "192.0.2.7"], []], host);
      }
    });

    it("have their own addresses behind any number of headers", {
      skip: edge !== "node" && "uWS takes 100 headers",
    }, async () => {
      const log = recordingLog();
      const handle: EdgeHandler = (request, reply) => reply.send(200, {}, request.address);
      const listener = await listen(
        { handle },
        { host: "127.0.0.1", port: 0, edge, log, trustedProxies: ["127.0.0.1"] },
      );
      const socket = connect(listener.port, "127.0.0.1");
      socket.write(
        `GET / HTTP/1.1\r\nhost: a\r\n${"a: b\r\n".repeat(2000)}x-forwarded-for: 192.0.2.7\r\nconnection: close\r\n\r\n`,
      );
      let received = "";
      for await (const chunk of socket) received += chunk;
      assert.match(received, /192\.0\.2\.7$/);
      listener.forceClose();
      await listener.closed;
    });

    it("share the address of a proxy that is not trusted, which is logged once", async () => {
      const { addresses, warnings } = await addressOf("127.0.0.1", ["10.0.0.0/8"]);
      assert.deepEqual(addresses, ["127.0.0.1", "127.0.0.1"]);
      assert.deepEqual([warnings.length, warnings[0]?.fields.peer], [1, "127.0.0.1"]);
      assert.match(warnings[0]!.message, /trusted_proxies/);
    });
  });
}

describe("a client that reads nothing for 27 s", { concurrency: true }, () => {
  for (const edge of loadableEdges()) {
    it(`is disconnected on the ${edge} edge if its response is complete, but not if it waits for one`, async () => {
      const size = 2 ** 24;
      const handle: EdgeHandler = ({ path }, reply) => {
        if (path === "/") reply.send(200, {}, "x".repeat(size));
        else setTimeout(() => reply.send(200, {}, "late"), 26_000);
      };
      const listener = await listen({ handle }, { host: "127.0.0.1", port: 0, edge, log: recordingLog() });
      const late = fetch(`http://127.0.0.1:${listener.port}/late`);
      const socket = connect(listener.port, "127.0.0.1");
      socket.on("error", () => {});
      const closed = new Promise((resolve) => socket.on("close", resolve));
      socket.pause();
      socket.write(head("GET", "/"));
      await sleep(27_000);
      socket.resume();
      await closed;
      const text = await (await late).text();
      listener.forceClose();
      await listener.closed;
      assert.ok(socket.bytesRead < size, `all ${size} bytes were kept for the client`);
      assert.equal(text, "late");
    });
  }
});

describe("choosing an edge", () => {
  it("auto chooses uws if it loads, else node, and logs the reason only at debug level", async () => {
    const log = recordingLog();
    const listener = await listen({ handle: () => {} }, { host: "127.0.0.1", port: 0, edge: "auto", log });
    assert.equal(listener.edgeName, loadableEdges().includes("uws") ? "uws" : "node");
    const [why, serving] = log.lines;
    assert.deepEqual([why?.level, serving?.level, log.lines.length], ["debug", "info", 2]);
    assert.match(why!.message, new RegExp(`^${listener.edgeName} edge: .*load`));
    assert.equal(serving!.message, `serving on the ${listener.edgeName} edge`);
    listener.close();
    await listener.closed;
  });

  it("a forced edge that does not load is a configuration error", async () => {
    const missing = (["uws", "uws-compat"] as const).filter((name) => !loadableEdges().includes(name));
    for (const edge of missing) {
      const options = { host: "127.0.0.1", port: 0, edge, log: recordingLog() };
      await assert.rejects(
        listen({ handle: () => {} }, options),
        (error: ServerError) => error.code === "config_invalid",
      );
    }
  });
});
