import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { maxLoggedBytes, RequestLog } from "../../../../http/observe/request-log.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, FakeInference, finish, type Script, text } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const chatPath = "/v1/chat/completions";
const json = { "content-type": "application/json" };
const folder = mkdtempSync(join(tmpdir(), "request-log-"));
let files = 0;
after(() => rmSync(folder, { recursive: true }));

async function setUp(script?: Script) {
  const file = join(folder, `${files++}.jsonl`);
  const log = recordingLog();
  const requestLog = await RequestLog.open(file, log);
  const app = createApp({ inference: new FakeInference(script), log, observers: [requestLog] });
  const entries = async () => {
    // The server ends the HTTP exchange a moment after the response has arrived.
    await new Promise(setImmediate);
    await requestLog.close();
    const lines = readFileSync(file, "utf8").split("\n");
    assert.equal(lines.pop(), "");
    return lines.map((line) => JSON.parse(line));
  };
  return { app, entries, file };
}

describe("the request log", () => {
  it("has every inference request with its response, complete or as the data of its events", async () => {
    const { app, entries, file } = await setUp();
    const body = '{\n  "messages": "hi\\n",\r\n  "seed": 1\n}';
    const whole = await request(app, "POST", chatPath, { body, headers: { ...json, "x-request-id": "r-1" } });
    const streamed = await request(app, "POST", chatPath, { body: { messages: "hi", stream: true } });
    const lines = await request(app, "POST", "/api/generate", { body: { prompt: "hi" } });
    await request(app, "GET", "/v1/models");
    const [first, second, third, ...others] = await entries();
    assert.deepEqual(others, []);
    const { time, durationMs, ...rest } = first;
    assert.ok(Math.abs(Date.parse(time) - Date.now()) < 10_000 && durationMs >= 0);
    assert.deepEqual(rest, {
      requestId: "r-1",
      method: "POST",
      path: chatPath,
      status: 200,
      model: "tiny",
      request: { messages: "hi\n", seed: 1 },
      response: JSON.parse(whole.body),
    });
    const data = streamed.body.split("\n\n").filter((event) => event !== "");
    assert.equal(second.response.at(-1), "[DONE]");
    assert.deepEqual(
      second.response.map(
        (payload: unknown) => `data: ${typeof payload === "string" ? payload : JSON.stringify(payload)}`,
      ),
      data,
    );
    const values = lines.body.trimEnd().split("\n");
    assert.deepEqual(
      third.response,
      values.map((line) => JSON.parse(line)),
    );
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it("has refused requests too, as text if they are not JSON", async () => {
    const { app, entries } = await setUp();
    await request(app, "POST", chatPath, { body: '{"messages": "a\nb', headers: json });
    await request(app, "POST", chatPath, { body: { messages: 5 } });
    const aborter = new AbortController();
    aborter.abort();
    await new Promise((resolve) => {
      void request(app, "POST", chatPath, { body: { messages: "hi" }, signal: aborter.signal });
      setTimeout(resolve, 5);
    });
    const [broken, wrong, left] = await entries();
    assert.deepEqual([broken.status, broken.request], [400, '{"messages": "a\nb']);
    assert.deepEqual([wrong.status, wrong.request, wrong.response.error.param], [400, { messages: 5 }, "messages"]);
    assert.deepEqual([left.status, left.response], [499, null]);
  });

  it("has the result of a background response when it is retrieved", async () => {
    const { app, entries } = await setUp();
    const created = await request(app, "POST", "/v1/responses", { body: { input: "hi", background: true } });
    const path = `/v1/responses/${JSON.parse(created.body).id}`;
    let fetched = "";
    for (let i = 0; i < 50 && !fetched.includes('"status":"completed"'); i++) {
      fetched = (await request(app, "GET", path)).body;
    }
    await request(app, "GET", `${path}/input_items`);
    const logged = await entries();
    const last = logged.at(-1);
    assert.deepEqual([last.method, last.path, last.request], ["GET", path, null]);
    assert.deepEqual(last.response, JSON.parse(fetched));
    assert.match(fetched, /Hello world/);
  });

  it("masks secrets in bodies, but not model tokens", async () => {
    const logprobs = [{ token: "hi", logprob: -1, bytes: [104, 105], top: [] }];
    const { app, entries } = await setUp(() => [[text("hi", 0, logprobs), finish()], [done]]);
    const metadata = { Authorization: 'Bearer "hush"', api_key: "hush", note: "shown" };
    await request(app, "POST", chatPath, { body: { messages: "hi", logprobs: true, metadata } });
    const [entry] = await entries();
    assert.deepEqual(entry.request.metadata, { Authorization: "[redacted]", api_key: "[redacted]", note: "shown" });
    assert.equal(entry.response.choices[0].logprobs.content[0].token, "hi");
  });

  it("truncates long bodies and reports the omitted bytes", async () => {
    const long = "x".repeat(1_000_000);
    const { app, entries } = await setUp(() => [...Array.from({ length: 6 }, () => [text(long)]), [finish()], [done]]);
    const body = JSON.stringify({ messages: "y".repeat(maxLoggedBytes), stream: true });
    const reply = await request(app, "POST", chatPath, { body, headers: json });
    const [entry] = await entries();
    assert.equal(entry.requestCutBytes, body.length - maxLoggedBytes);
    assert.equal(entry.request, body.slice(0, maxLoggedBytes));
    const kept = entry.response.filter((event: { choices?: [] }) => event.choices?.length);
    assert.equal(kept.length, 4);
    assert.ok(entry.responseCutBytes > 2_000_000 && entry.responseCutBytes < reply.body.length - 4_000_000);
  });

  it("has the complete events of a truncated stream, and the start of a truncated body as text", async () => {
    const tokens = Array.from({ length: 100_000 }, () => ({ token: "token", bytes: [1, 2, 3], logprob: -1, top: [] }));
    const { app, entries } = await setUp(() => [[text("a", 0, tokens), finish()], [done]]);
    const ask = (body: object) => request(app, "POST", chatPath, { body: { messages: "hi", logprobs: true, ...body } });
    const [streamed, whole] = [await ask({ stream: true }), await ask({})];
    const [ofStream, ofWhole] = await entries();
    assert.deepEqual(ofStream.response, []);
    assert.ok(ofStream.responseCutBytes > 0 && ofStream.responseCutBytes < streamed.body.length);
    assert.equal(typeof ofWhole.response, "string");
    assert.ok(whole.body.startsWith(ofWhole.response));
    assert.equal(ofWhole.response.length + ofWhole.responseCutBytes, whole.body.length);
  });

  it("has the start of an unfinished body as text", async () => {
    const tokens = Array.from({ length: 4000 }, () => ({ token: "token", bytes: [1, 2, 3], logprob: -1, top: [] }));
    const leaving = new AbortController();
    const { app, entries } = await setUp(function* () {
      yield [text("a", 0, tokens), finish()];
      setTimeout(() => leaving.abort(), 1);
      yield [done];
    });
    void request(app, "POST", chatPath, { body: { messages: "hi", logprobs: true }, signal: leaving.signal });
    await new Promise((resolve) => setTimeout(resolve, 50));
    const [entry] = await entries();
    assert.equal(typeof entry.response, "string");
    assert.equal(entry.status, 200);
  });

  it("fails at the start if its file cannot be opened", async () => {
    await assert.rejects(RequestLog.open(join(folder, "no", "where"), recordingLog()), (error: unknown) => {
      return error instanceof ServerError && error.code === "config_invalid" && error.param === "log";
    });
  });
});
