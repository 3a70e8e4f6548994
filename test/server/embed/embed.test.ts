// Embedding API with the real default model: mounted in Hono and in Express, and in a program that must exit by itself.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import express from "express";
import { Hono } from "hono";
import OpenAI from "openai";
import { createTroupe, type Troupe, type TroupeSettings } from "../../../cli/embed/main.ts";
import { realModel } from "../../fixtures/models/models.ts";

const main = fileURLToPath(new URL("../../../cli/embed/main.js", import.meta.url));
const programLimitMs = 180_000;
const idleLimitMs = 20_000;

const question = {
  messages: [{ role: "user" as const, content: "Write one sentence about the sea." }],
  temperature: 0,
};
const chatBody = { model: "default", ...question, max_tokens: 4 };

function settingsOf(path: string): TroupeSettings {
  const models = [{ modelId: path, maxModelLen: 512, device: { cpu: true } }];
  return { models, troupe: { engine: "wasm", threads: 1, logLevel: "error" } };
}

function post(path: string, body: unknown, signal?: AbortSignal): Request {
  const headers = { "content-type": "application/json" };
  return new Request(`http://localhost${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
    signal: signal ?? null,
  });
}

describe("an embedded troupe", () => {
  let troupe: Troupe;
  let path = "";
  const signalListeners = () => process.listenerCount("SIGTERM") + process.listenerCount("SIGINT");
  const listenersBefore = signalListeners();

  before(async () => {
    ({ path } = await realModel());
    troupe = await createTroupe(settingsOf(path));
  });
  after(() => troupe.close());

  /** Waits until the models are idle. */
  async function becomesIdle(): Promise<void> {
    const limit = Date.now() + idleLimitMs;
    while (Date.now() < limit) {
      const text = await (await troupe.fetch(new Request("http://localhost/metrics"))).text();
      const running = /^service_sequences_running (\d+)/m.exec(text)?.[1];
      if (running === "0") return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.fail("a sequence still runs");
  }

  it("handles no signals of the program", () => {
    assert.equal(signalListeners(), listenersBefore);
  });

  describe("in Hono", () => {
    const app = new Hono();
    before(() => {
      const open = troupe.router({
        basePath: "/ai",
        routes: [
          {
            method: "POST",
            path: "/notes/{note}",
            handler: async (request, { note }) => Response.json({ note, body: await request.json() }, { status: 201 }),
          },
          { method: "GET", path: "/count", handler: () => new Response(new Blob(["one", "two"]).stream()) },
        ],
      });
      const closed = troupe.router({ basePath: "/plain", docs: false, metrics: false });
      app.get("/", (context) => context.text("home"));
      app.all("/ai/*", (context) => open.fetch(context.req.raw));
      app.all("/plain/*", (context) => closed.fetch(context.req.raw));
      app.mount("/mounted", (request) => troupe.fetch(request));
    });

    it("answers a chat, beside the program's own routes", async () => {
      const answer = await app.request(post("/ai/v1/chat/completions", chatBody));
      assert.equal(answer.status, 200);
      const { choices } = (await answer.json()) as OpenAI.ChatCompletion;
      assert.ok((choices[0]?.message.content ?? "").length > 0);
      assert.equal(await (await app.request("/")).text(), "home");
    });

    it("streams the same text", async () => {
      const whole = await app.request(post("/mounted/v1/chat/completions", chatBody));
      const stream = await app.request(post("/ai/v1/chat/completions", { ...chatBody, stream: true }));
      assert.equal(stream.headers.get("content-type"), "text/event-stream");
      const events = (await stream.text()).split("\n").filter((line) => line.startsWith("data: {"));
      const deltas = events.map((line) => (JSON.parse(line.slice(6)) as OpenAI.ChatCompletionChunk).choices[0]?.delta);
      const { choices } = (await whole.json()) as OpenAI.ChatCompletion;
      assert.equal(deltas.map((delta) => delta?.content ?? "").join(""), choices[0]?.message.content);
    });

    it("stops generating when the reader cancels, and when the request is aborted", async () => {
      const long = { ...chatBody, max_tokens: 400, ignore_eos: true, stream: true };
      const cancelled = await app.request(post("/ai/v1/chat/completions", long));
      const reader = cancelled.body?.getReader();
      await reader?.read();
      await reader?.cancel();
      await becomesIdle();
      const stop = new AbortController();
      const aborted = app.request(post("/ai/v1/chat/completions", { ...long, stream: false }, stop.signal));
      setTimeout(() => stop.abort(), 100);
      assert.equal((await aborted).status, 499);
      await becomesIdle();
    });

    it("serves what the options of each router say", async () => {
      const status = async (path: string) => (await app.request(path)).status;
      assert.deepEqual([await status("/ai/docs"), await status("/ai/metrics")], [200, 200]);
      assert.deepEqual([await status("/plain/docs"), await status("/plain/metrics")], [404, 404]);
      assert.deepEqual([await status("/plain/api-doc/openapi.json"), await status("/plain/v1/models")], [404, 200]);
      const document = (await (await app.request("/ai/api-doc/openapi.json")).json()) as { servers: unknown };
      assert.deepEqual(document.servers, [{ url: "/ai" }]);
    });

    it("has the extra routes", async () => {
      const noted = await app.request(post("/ai/notes/7", { text: "x" }));
      assert.deepEqual([noted.status, await noted.json()], [201, { note: "7", body: { text: "x" } }]);
      assert.equal(await (await app.request("/ai/count")).text(), "onetwo");
      assert.throws(
        () => troupe.router({ routes: [{ method: "GET", path: "/v1/models", handler: () => new Response() }] }),
        /GET \/v1\/models is a route of troupe/,
      );
    });

    it("answers errors in the format of the protocol", async () => {
      const unknown = await app.request("/ai/nothing");
      assert.equal(unknown.status, 404);
      const faulty = await app.request(post("/ai/v1/chat/completions", { ...chatBody, messages: 5 }));
      assert.ok(faulty.status === 400 || faulty.status === 422);
      const { error } = (await faulty.json()) as { error: { message: string } };
      assert.match(error.message, /messages/);
    });
  });

  describe("in Express", () => {
    let server: Server;
    let url = "";
    before(async () => {
      const app = express();
      const router = troupe.router({ basePath: "/ai" });
      app.use(router.nodeHandler);
      app.use("/stripped", express.json(), troupe.nodeHandler);
      app.get("/own", (_request, response) => {
        response.send("own");
      });
      server = createServer(app).listen(0, "127.0.0.1");
      await once(server, "listening");
      url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    });
    after(() => server.close());

    it("serves the official client, streaming and not", async () => {
      const client = new OpenAI({ baseURL: `${url}/ai/v1`, apiKey: "any", maxRetries: 0 });
      const whole = await client.chat.completions.create(chatBody);
      const stream = await client.chat.completions.create({ ...chatBody, stream: true });
      let text = "";
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
      assert.ok(text.length > 0);
      assert.equal(text, whole.choices[0]?.message.content);
    });

    it("takes a body that a body parser has read, and leaves other paths to the program", async () => {
      const client = new OpenAI({ baseURL: `${url}/stripped/v1`, apiKey: "any", maxRetries: 0 });
      assert.equal((await client.chat.completions.create(chatBody)).object, "chat.completion");
      assert.equal(await (await fetch(`${url}/own`)).text(), "own");
    });

    it("stops generating when the client disconnects", async () => {
      const stop = new AbortController();
      const client = new OpenAI({ baseURL: `${url}/ai/v1`, apiKey: "any", maxRetries: 0 });
      const stream = await client.chat.completions.create(
        { ...chatBody, max_tokens: 400, stream: true },
        { signal: stop.signal },
      );
      for await (const chunk of stream) {
        assert.equal(chunk.object, "chat.completion.chunk");
        stop.abort();
      }
      await becomesIdle();
    });
  });

  it("runs twice in a program, which ends by itself after both are closed", async () => {
    const program = `
      import { createTroupe } from ${JSON.stringify(main)};
      const settings = ${JSON.stringify(settingsOf(path))};
      const both = [await createTroupe(settings), await createTroupe(settings)];
      for (const troupe of both) {
        const answer = await troupe.fetch(new Request("http://localhost/v1/chat/completions", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: ${JSON.stringify(JSON.stringify(chatBody))},
        }));
        console.log(answer.status, (await answer.json()).choices[0].message.content.length > 0);
        await troupe.close();
        const late = await troupe.fetch(new Request("http://localhost/v1/chat/completions", { method: "POST", body: "{}" }));
        console.log(late.status);
      }`;
    const folder = await mkdtemp(join(tmpdir(), "troupe-embed-"));
    const file = join(folder, "program.mjs");
    await writeFile(file, program);
    const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: programLimitMs });
    await rm(folder, { recursive: true });
    assert.equal(stdout, "200 true\n503\n200 true\n503\n");
  });

  it("rejects unknown and unsuitable settings, naming them", async () => {
    // A JavaScript program is not type-checked, so it may pass any setting.
    const refused = (settings: object) => createTroupe(settings as TroupeSettings);
    await assert.rejects(
      refused({ troupe: { maxQueu: 4 } }),
      /unknown setting "troupe\.maxQueu"; did you mean "maxQueue"\?/,
    );
    await assert.rejects(refused({ server: { port: 80 } }), /"server\.port" is not for an embedded troupe/);
    await assert.rejects(refused({ maxSeqs: "many" }), /maxSeqs expects a whole number from 1 to \d+; got "many"/);
    await assert.rejects(refused({ models: [{}] }), /models\[0\] expects a modelId; got none/);
  });
});
