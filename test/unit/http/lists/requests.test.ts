import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agents } from "../../../../actors/api/agent/agents.ts";
import { type App, createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import { ActiveRequests, MAX_LISTED } from "../../../../http/observe/active-requests.ts";
import { ApiKeys } from "../../../../http/server/access/api-keys.ts";
import { activeRequestListSchema } from "../../../../http/system/requests.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import {
  begin,
  done,
  FakeInference,
  finish,
  reasoning,
  type Script,
  text,
} from "../../../fixtures/fakes/fake-inference.ts";
import { request, type SocketlessOptions } from "../../../fixtures/fakes/socketless.ts";
import { loadableEdges, recordingLog, startServer } from "../../../fixtures/http-server.ts";

const chat = "/v1/chat/completions";
const listPath = "/v1/system/requests";
const body = { messages: "hi" };

/** Script of a generation that outputs three pieces, then waits longer than any test. */
const generating: Script = () => [[begin(), reasoning("Hm.")], [text("Hel"), text("lo")], { waitMs: 60_000 }];
const queued: Script = () => [{ waitMs: 60_000 }];

function setUp(script: Script, config: Partial<HttpConfig> = {}) {
  const inference = new FakeInference(script);
  const log = recordingLog();
  const app = createApp({ inference, log, config });
  const send = (path: string, id: string, sent: object = body, options: SocketlessOptions = {}) =>
    request(app, "POST", path, { body: sent, headers: { "x-request-id": id }, ...options });
  return { inference, log, app, send };
}

async function listed(app: App) {
  const reply = await request(app, "GET", listPath);
  assert.equal(reply.status, 200, reply.body);
  return activeRequestListSchema.parse(JSON.parse(reply.body)).data;
}

async function listedIds(app: App): Promise<readonly string[]> {
  return (await listed(app)).map(({ id }) => id);
}

function cancel(app: App, id: string) {
  return request(app, "POST", `${listPath}/${encodeURIComponent(id)}/cancel`);
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 500 && !(await condition()); i++) await sleep(2);
  assert.ok(await condition());
}

describe("the list of requests in progress", () => {
  it("has what is known of each request, the oldest first, until it ends", async () => {
    const { app, inference, send } = setUp(generating);
    const since = Math.floor(Date.now() / 1000);
    const first = send(
      chat,
      "first",
      { ...body, stream: true },
      { headers: { "x-request-id": "first" }, address: "192.0.2.7" },
    );
    await until(() => inference.runs[0]?.batchCount === 2);
    inference.script = queued;
    const second = send("/v1/messages", "second", { messages: [{ role: "user", content: "hi" }], max_tokens: 9 });
    await until(() => inference.runs.length === 2);
    const [one, two, ...more] = await listed(app);
    const { received_at, ...facts } = one!;
    assert.ok(received_at >= since && received_at <= Date.now() / 1000);
    assert.deepEqual(facts, {
      id: "first",
      path: chat,
      model: "tiny",
      client: "192.0.2.7",
      stream: true,
      state: "generating",
      prompt_tokens: 8,
      completion_tokens: 3,
    });
    assert.deepEqual(
      [two?.id, two?.path, two?.stream, two?.state, two?.prompt_tokens, two?.completion_tokens],
      ["second", "/v1/messages", false, "queued", null, 0],
    );
    assert.deepEqual(more, []);
    for (const id of ["second", "first"]) await cancel(app, id);
    await Promise.all([first, second]);
    assert.deepEqual(await listed(app), []);
  });

  it("does not have requests that have ended, failed, or lost their client", async () => {
    const { app, inference, send } = setUp(() => [
      [begin(), text("Hi")],
      [finish(), done],
    ]);
    await send(chat, "ended");
    inference.script = () => [[{ type: "error", error: { code: "model_failed", message: "no" } }]];
    await send(chat, "failed");
    assert.deepEqual(await listed(app), []);
    inference.script = generating;
    const leaving = new AbortController();
    void send(chat, "left", { ...body, stream: true }, { signal: leaving.signal });
    await until(async () => (await listed(app)).length === 1);
    leaving.abort();
    await until(async () => (await listed(app)).length === 0);
    assert.equal(inference.lastRun.state, "cancelled");
  });

  it("has one entry for a request with several prompts", async () => {
    const { app, inference, send } = setUp(generating);
    const reply = send("/v1/completions", "many", { prompt: ["a", "b", "c"] });
    await until(() => inference.runs.length === 3 && inference.runs.every(({ batchCount }) => batchCount === 2));
    const [entry, ...more] = await listed(app);
    assert.deepEqual([entry?.prompt_tokens, entry?.completion_tokens, more], [24, 9, []]);
    assert.equal((await cancel(app, "many")).status, 200);
    assert.equal((await reply).status, 503);
    await until(async () => (await listed(app)).length === 0);
  });

  it("is bounded", () => {
    const active = new ActiveRequests();
    const ends = Array.from({ length: MAX_LISTED + 1 }, (_, i) => {
      const source = { id: `r${i}`, path: chat, client: "", receivedAt: MAX_LISTED - i };
      return active.request(source, { model: "m", series: null }).enter();
    });
    const { requests, hasMore } = active.list();
    assert.deepEqual([requests.length, hasMore, requests[0]?.source.id], [MAX_LISTED, true, `r${MAX_LISTED}`]);
    for (const end of ends) end();
    ends[0]?.();
    assert.deepEqual(active.list(), { requests: [], hasMore: false });
  });

  it("needs an API key on a server with keys, and is gone with disable_lists", async () => {
    const apiKeys = new ApiKeys(["k".repeat(20)]);
    const locked = createApp({ inference: new FakeInference(), log: recordingLog(), apiKeys });
    for (const [method, path] of [
      ["GET", listPath],
      ["POST", `${listPath}/x/cancel`],
    ] as const) {
      assert.equal((await request(locked, method, path)).status, 401);
      const { app } = setUp(queued, { servesLists: false });
      assert.equal((await request(app, method, path)).status, 404);
    }
  });
});

describe("cancelling a request", () => {
  const cancelledBody = (reply: { readonly status: number; readonly body: string }) => [
    reply.status,
    JSON.parse(reply.body).error.code,
  ];

  it("ends it with the error `cancelled` before its first token", async () => {
    const { app, inference, log, send } = setUp(queued);
    const reply = send(chat, "r");
    await until(() => inference.runs.length === 1);
    const answer = await cancel(app, "r");
    assert.deepEqual([answer.status, JSON.parse(answer.body)], [200, { id: "r", object: "request", cancelled: true }]);
    const { status, headers, body: sent } = await reply;
    assert.deepEqual(cancelledBody({ status, body: sent }), [503, "cancelled"]);
    assert.equal(headers["retry-after"], "1");
    assert.equal(inference.lastRun.state, "cancelled");
    await new Promise(setImmediate);
    const line = log.lines.find(({ fields }) => fields.requestId === "r");
    assert.deepEqual([line?.fields.status, line?.fields.code], [503, "cancelled"]);
  });

  it("ends a stream that has begun with the error of its protocol", async () => {
    const protocols: readonly (readonly [path: string, body: object, error: RegExp])[] = [
      [chat, body, /data: \{"error":\{.*"code":"cancelled"\}\}/],
      ["/v1/completions", { prompt: "hi" }, /"code":"cancelled"/],
      ["/v1/responses", { input: "hi" }, /event: response\.failed\ndata: .*"code":"cancelled"/],
      [
        "/v1/messages",
        { messages: [{ role: "user", content: "hi" }], max_tokens: 9 },
        /event: error\ndata: .*cancelled/,
      ],
      ["/api/chat", { model: "tiny", messages: [{ role: "user", content: "hi" }] }, /\{"error":".*cancelled/],
    ];
    const { app, inference, send } = setUp(generating, { allowCompletionsStream: true });
    for (const [path, sent, error] of protocols) {
      const runs = inference.runs.length;
      const reply = send(path, "r", { ...sent, stream: true });
      await until(() => inference.runs.length === runs + 1 && inference.lastRun.batchCount === 2);
      assert.equal((await cancel(app, "r")).status, 200, path);
      const { status, body: text } = await reply;
      assert.equal(status, 200, path);
      assert.match(text, error, path);
      assert.equal(inference.lastRun.state, "cancelled", path);
    }
  });

  it("ends an embedding", async () => {
    const { app, inference, send } = setUp(queued);
    inference.embedder = (_, signal) =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(new ServerError("peer_gone", "ended")), { once: true });
      });
    const reply = send("/v1/embeddings", "e", { input: "hi" });
    await until(async () => (await listed(app)).length === 1);
    assert.equal((await cancel(app, "e")).status, 200);
    assert.deepEqual(cancelledBody(await reply), [503, "cancelled"]);
    assert.deepEqual(await listed(app), []);
  });

  it("ends a run of the agent loop", async () => {
    const inference = new FakeInference(generating);
    const agents: Agents = {
      groups: ["shell"],
      dispatches: false,
      permission: "auto",
      serverTools: [],
      registersServerTools: false,
      toolServers: null,
      run: (asked, _, signal) => inference.generate(asked, signal),
      decide: () => "not_found",
      forget: async () => {},
      pending: () => [],
    };
    const app = createApp({ inference, log: recordingLog(), agents });
    const reply = request(app, "POST", chat, {
      body: { ...body, enable_shell: true },
      headers: { "x-request-id": "run" },
    });
    await until(() => inference.runs[0]?.batchCount === 2);
    assert.deepEqual(await listedIds(app), ["run"]);
    await cancel(app, "run");
    assert.deepEqual(cancelledBody(await reply), [503, "cancelled"]);
  });

  it("ends a background response as cancelled, whose client has left", async () => {
    const { app, inference, send } = setUp(generating);
    const created = JSON.parse((await send("/v1/responses", "b", { input: "hi", background: true })).body);
    await until(() => inference.lastRun?.batchCount === 2);
    assert.deepEqual(await listedIds(app), ["b"]);
    await cancel(app, "b");
    const state = async () => JSON.parse((await request(app, "GET", `/v1/responses/${created.id}`)).body);
    await until(async () => (await state()).status === "cancelled");
    assert.equal((await state()).output_text, "Hello");
    assert.deepEqual(await listed(app), []);
  });

  it("finds any id that a client may choose, and all requests with it", async () => {
    const { app, inference, send } = setUp(queued);
    const id = "a/b c?%";
    const replies = [send(chat, id), send(chat, id), send(chat, "other")];
    await until(() => inference.runs.length === 3);
    assert.equal((await cancel(app, id)).status, 200);
    for (const reply of replies.slice(0, 2)) assert.equal((await reply).status, 503);
    assert.deepEqual(await listedIds(app), ["other"]);
    await cancel(app, "other");
  });

  it("changes nothing once the answer is complete", async () => {
    const { app, inference, send } = setUp(() => [[begin(), text("Hi")], [finish(), done], { waitMs: 20 }]);
    const reply = send(chat, "r", { ...body, stream: true });
    await until(() => inference.lastRun?.batchCount === 2);
    await cancel(app, "r");
    const { body: sent } = await reply;
    assert.match(sent, /\[DONE\]/);
    assert.doesNotMatch(sent, /cancelled/);
  });

  it("is refused for an id that no request has", async () => {
    const { app } = setUp(queued);
    const reply = await cancel(app, "none");
    const { error } = JSON.parse(reply.body);
    assert.deepEqual([reply.status, error.code, error.param], [404, "not_found", "request_id"]);
    assert.match(error.message, /"none"/);
    assert.equal((await request(app, "GET", `${listPath}/none/cancel`)).status, 405);
  });
});

for (const edge of loadableEdges()) {
  describe(`requests in progress on the ${edge} edge`, () => {
    it("are listed by the id of their header, and can be cancelled", async () => {
      const server = await startServer(edge, { script: generating });
      try {
        const sent = JSON.stringify({ ...body, stream: true });
        const headers = { "content-type": "application/json" };
        const reply = await fetch(`${server.url}${chat}`, { method: "POST", headers, body: sent });
        const id = reply.headers.get("x-request-id") ?? "";
        const { data } = activeRequestListSchema.parse(await (await fetch(`${server.url}${listPath}`)).json());
        assert.deepEqual([data.length, data[0]?.id, data[0]?.client], [1, id, "127.0.0.1"]);
        const answer = await fetch(`${server.url}${listPath}/${id}/cancel`, { method: "POST" });
        assert.deepEqual([answer.status, await answer.json()], [200, { id, object: "request", cancelled: true }]);
        assert.match(await reply.text(), /"code":"cancelled"/);
      } finally {
        await server.stop();
      }
    });
  });
}
