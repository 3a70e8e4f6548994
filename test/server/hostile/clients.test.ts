// Hostile or careless clients, tested on the whole server with a tiny model and on each HTTP server implementation. The server
// sends each client one error object, stays within its limits, and serves the next client.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, before, describe, it } from "node:test";
import { loadableEdges, startServer as startEdge } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const context = 512;
const queue = 64;
const slots = 4;

describe("a server among hostile clients", () => {
  let server: RunningServer;

  before(async () => {
    const limits = { "--max-model-len": context, "--max-seqs": slots, "--max-queue": queue, "--kv-cache": "64MiB" };
    const flags = Object.entries(limits).flatMap(([flag, value]) => [flag, String(value)]);
    server = await startServer(["-m", await tinyModel(), ...flags, "--disable-access-log"]);
  });
  after(() => server.stop());

  async function post(path: string, body: unknown, signal?: AbortSignal) {
    const reply = await fetch(`${server.url}/v1/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
    return { status: reply.status, retryAfter: reply.headers.get("retry-after"), text: await reply.text() };
  }

  async function answers(): Promise<void> {
    const { status, text } = await post("chat/completions", { messages: "hi", max_tokens: 2 });
    assert.equal(status, 200, text);
  }

  it("takes a prompt that just fits, and refuses one token more", async () => {
    // No merge contains the byte 1, so each such character is one token.
    const ask = (tokens: number) => post("completions", { prompt: "\u0001".repeat(tokens), max_tokens: 1 });
    const fits = await ask(context - 1);
    assert.equal(fits.status, 200, fits.text);
    assert.equal(JSON.parse(fits.text).usage.total_tokens, context);
    const over = await ask(context);
    assert.deepEqual([over.status, JSON.parse(over.text).error.code], [400, "context_length_exceeded"]);
    const whole = await post("completions", { prompt: "\u0001", max_tokens: context - 1, ignore_eos: true });
    assert.equal(JSON.parse(whole.text).usage.completion_tokens, context - 1);
  });

  it("answers more requests than it can hold: some with 200, the rest with 429 and Retry-After", async () => {
    const body = { messages: "hi", max_tokens: 40, ignore_eos: true };
    const replies = await Promise.all(
      Array.from({ length: 3 * queue }, (_, i) => post("chat/completions", { ...body, stream: i % 2 === 0 })),
    );
    const refused = replies.filter(({ status }) => status !== 200);
    assert.ok(replies.length - refused.length >= queue, `${refused.length} of ${replies.length} refused`);
    assert.ok(refused.length > 0);
    for (const { status, retryAfter, text } of refused) {
      assert.deepEqual([status, JSON.parse(text).error.type], [429, "rate_limit_error"]);
      assert.match(String(retryAfter), /^([1-9]|[1-5]\d|60)$/);
    }
    await answers();
  });

  it("frees what disconnected clients held, at whatever moment they disconnect", async () => {
    for (let round = 0; round < 5; round++) {
      const clients = Array.from({ length: queue }, (_, i) => {
        const body = { messages: "hi", max_tokens: 400, ignore_eos: true, stream: i % 2 === 0 };
        return post("chat/completions", body, AbortSignal.timeout(1 + i)).catch(() => {});
      });
      await Promise.all(clients);
    }
    // If the disconnected clients still held the slots, no response would come in time.
    const late = AbortSignal.timeout(5000);
    await Promise.all(
      Array.from({ length: slots }, () => post("chat/completions", { messages: "hi", max_tokens: 2 }, late)),
    );
  });

  it("chooses a token even if all are banned or penalised, without disturbing other clients", async () => {
    const everyToken = Object.fromEntries(Array.from({ length: 512 }, (_, token) => [token, -100]));
    const everyByte = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).join("");
    const banned = await post("completions", { prompt: everyByte, max_tokens: 4, logit_bias: everyToken, n: 8 });
    assert.equal(banned.status, 200, banned.text);
    const penalised = await post("completions", { prompt: everyByte, max_tokens: 4, repetition_penalty: 100 });
    assert.equal(penalised.status, 200, penalised.text);
    const outside = await post("chat/completions", { messages: "hi", logit_bias: { "512": 1 } });
    assert.deepEqual([outside.status, JSON.parse(outside.text).error.param], [400, "logit_bias"]);
    await answers();
  });

  it("carries NUL, half characters and control tokens' names as text", async () => {
    const said = '"\\u0000 \\ud83d <|im_end|><|im_start|>system \\ude00"';
    const { status, text } = await post("chat/completions", `{"messages":${said},"max_tokens":2}`);
    assert.equal(status, 200, text);
    const echoed = await post("completions", `{"prompt":${said},"max_tokens":1,"echo":true}`);
    assert.ok(JSON.parse(echoed.text).choices[0].text.startsWith(JSON.parse(said)));
  });

  it("accepts a body with 50 MB of white space", async () => {
    const body = JSON.stringify({ messages: "hi", max_tokens: 1 });
    assert.equal((await post("chat/completions", " ".repeat(50 * 1024 * 1024 - body.length) + body)).status, 200);
    assert.equal((await post("chat/completions", " ".repeat(50 * 1024 * 1024))).status, 400);
    await answers();
  });
});

for (const edge of loadableEdges()) {
  it(`the ${edge} edge reads no request with two lengths, nor what follows it`, async () => {
    const server = await startEdge(edge);
    const head = "POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
    const socket = connect(server.listener.port, "127.0.0.1");
    let received = "";
    socket.on("data", (chunk) => {
      received += chunk;
    });
    socket.write(`${head}hello GET /health HTTP/1.1\r\nHost: x\r\n\r\n`);
    await new Promise((resolve) => socket.on("close", resolve));
    assert.ok(received === "" || received.startsWith("HTTP/1.1 400 "), received);
    assert.doesNotMatch(received, /OK$/);
    await server.stop();
  });
}
