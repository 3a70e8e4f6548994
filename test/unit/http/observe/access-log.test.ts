import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import { FakeInference, failure, finish, text, usage } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const chatPath = "/v1/chat/completions";

function setUp(config: Partial<HttpConfig> = {}) {
  const inference = new FakeInference();
  const log = recordingLog();
  return { inference, log, app: createApp({ inference, log, config }) };
}

describe("the access log", () => {
  it("has the request, its outcome and its cost", async () => {
    const { app, log, inference } = setUp();
    inference.script = ({ receivedAt }) => {
      const timeline = { ...usage.timeline, firstTokenAt: receivedAt + 250 };
      return [[text("Hello"), finish()], [{ type: "done", usage: { ...usage, timeline } }]];
    };
    const body = JSON.stringify({ messages: "hi", stream: true });
    const headers = { "content-type": "application/json", "x-request-id": "r-1", authorization: "Bearer hush" };
    const reply = await request(app, "POST", chatPath, { body, headers, address: "192.0.2.7" });
    // The server ends the HTTP exchange, and logs it, a moment after the response has arrived.
    await new Promise(setImmediate);
    const [line] = log.lines;
    const { durationMs, ...fields } = line!.fields;
    assert.ok(typeof durationMs === "number" && durationMs >= 0);
    assert.deepEqual(fields, {
      method: "POST",
      path: chatPath,
      status: 200,
      requestBytes: body.length,
      bytes: reply.body.length,
      address: "192.0.2.7",
      requestId: "r-1",
      model: "tiny",
      promptTokens: 8,
      completionTokens: 4,
      firstTokenMs: 250,
    });
    assert.doesNotMatch(JSON.stringify(log.lines), /hush|"hi"/);
  });

  it("has the error code of a request that failed before or during its response", async () => {
    const { app, log, inference } = setUp();
    const send = async (body: object) => {
      await request(app, "POST", chatPath, { body });
      // The server ends the HTTP exchange a moment after it has sent the response.
      await new Promise(setImmediate);
    };
    await send({ messages: "hi" });
    await send({ messages: "hi", temperature: 9 });
    await send({ messages: "hi", model: "none" });
    inference.script = () => [[text("a")], [failure("model_failed")]];
    await send({ messages: "hi", stream: true });
    assert.deepEqual(
      log.lines.filter(({ message }) => message === "request").map(({ fields }) => [fields.status, fields.code]),
      [
        [200, undefined],
        [400, "invalid_value"],
        [404, "model_not_found"],
        [200, "model_failed"],
      ],
    );
  });

  it("omits operations of any method unless configured", async () => {
    for (const accessLogHealth of [false, true]) {
      const { app, log } = setUp({ accessLogHealth });
      await request(app, "GET", "/health");
      await request(app, "DELETE", "/health");
      await new Promise(setImmediate);
      assert.deepEqual(
        log.lines.map(({ fields }) => fields.status),
        accessLogHealth ? [200, 405] : [],
      );
    }
  });

  it("has the pattern of a path with a parameter", async () => {
    const { app, log } = setUp({ accessLogHealth: true });
    await request(app, "GET", "/docs/none.css");
    await new Promise(setImmediate);
    const { path, route } = log.lines[0]!.fields;
    assert.deepEqual([path, route], ["/docs/none.css", "/docs/{asset}"]);
  });

  it("has the tokens of embeddings, and none of a refused request", async () => {
    const { app, log } = setUp();
    await request(app, "POST", "/v1/embeddings", { body: { input: ["a", "b"] } });
    await new Promise(setImmediate);
    await request(app, "POST", "/v1/embeddings", { body: { input: 5 } });
    await new Promise(setImmediate);
    assert.deepEqual(
      log.lines.map(({ fields }) => [fields.status, fields.promptTokens]),
      [
        [200, 6],
        [400, undefined],
      ],
    );
  });
});
