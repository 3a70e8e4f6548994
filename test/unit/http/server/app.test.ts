import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openContent } from "../../../../actors/api/sealed-content.ts";
import { createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import type { ErrorCode } from "../../../../runtime/errors.ts";
import { FakeInference, failure, type Script, text } from "../../../fixtures/fakes/fake-inference.ts";
import { FakeModels } from "../../../fixtures/fakes/fake-models.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

function setUp(options: { script?: Script; config?: Partial<HttpConfig> } = {}) {
  const inference = new FakeInference(options.script);
  const log = recordingLog();
  return { inference, log, app: createApp({ inference, log, config: options.config ?? {} }) };
}

const chat = { body: { messages: "hi" } };
const path = "/v1/chat/completions";

describe("the app", () => {
  it("responds OK on /health and on /", async () => {
    for (const at of ["/health", "/"]) {
      const { status, body, headers } = await request(setUp().app, "GET", at);
      assert.deepEqual([status, body, headers["content-type"]], [200, "OK", "text/plain; charset=utf-8"]);
    }
  });

  it("responds 503 if the process has no file descriptor left, and logs the error", async () => {
    const { app, log } = setUp({
      script: () => {
        throw Object.assign(new Error("EMFILE: too many open files, open 'a'"), { code: "EMFILE", syscall: "open" });
      },
    });
    const { status, body, headers } = await request(app, "POST", path, chat);
    assert.deepEqual([status, JSON.parse(body).error.code], [503, "storage_unavailable"]);
    assert.equal(headers["retry-after"] === undefined, false);
    assert.equal(log.lines.filter(({ level }) => level === "error").length, 1);
  });

  it("reports failed parts on /health and / with retry-after", async () => {
    const { app, inference } = setUp();
    inference.down = ["the text thread is not running", "so is another"];
    for (const at of ["/health", "/", "/ready"]) {
      const { status, body, headers } = await request(app, "GET", at);
      assert.deepEqual([status, headers["retry-after"]], [503, "2"]);
      assert.equal(body, "the text thread is not running\nso is another");
    }
  });

  it("responds OK on /ready if the default model is loaded or loads on the next request, else with the reason", async () => {
    const inference = new FakeInference();
    const models = new FakeModels(inference);
    const app = createApp({ inference, models, log: recordingLog() });
    const because = { code: "model_failed", message: "the file is damaged" } as const;
    for (const [becomes, status, said] of [
      [{ status: "loaded", error: null }, 200, /^OK$/],
      [{ status: "unloaded", error: null }, 200, /^OK$/],
      [{ status: "reloading", error: null }, 503, /^model "tiny" is being loaded$/],
      [{ status: "unloaded", error: because }, 503, /^model "tiny" is not loaded: the file is damaged$/],
    ] as const) {
      models.becomes = becomes;
      const reply = await request(app, "GET", "/ready");
      assert.equal(reply.status, status, reply.body);
      assert.match(reply.body, said);
      assert.equal(reply.headers["retry-after"], status === 503 ? "2" : undefined);
      assert.equal((await request(app, "GET", "/health")).status, 200);
    }
  });

  it("responds 503 on /ready while as many sequences wait as ready_max_queue says", async () => {
    const inference = new FakeInference();
    const models = new FakeModels(inference);
    const app = createApp({ inference, models, log: recordingLog(), config: { readyMaxQueue: 8 } });
    for (const [queued, status] of [
      [0, 200],
      [7, 200],
      [8, 503],
    ] as const) {
      models.queued = queued;
      const reply = await request(app, "GET", "/ready");
      assert.equal(reply.status, status);
      if (status === 503) assert.equal(reply.body, "8 sequences wait for a slot; ready_max_queue is 8");
    }
  });

  it("allows pages of any origin unless cors_origins is set", async () => {
    const origin = "https://page.example";
    const config = { corsOrigins: [origin, "app://notes"], allowedHosts: ["chat.example"], host: "0.0.0.0" };
    const { app } = setUp({ config });
    const ask = (method: string, headers: Record<string, string>) =>
      request(app, method, "/v1/models", { headers: { host: "chat.example", ...headers } });
    for (const method of ["GET", "OPTIONS", "DELETE"]) {
      for (const listed of [origin, "app://notes"]) {
        const { status, headers } = await ask(method, { origin: listed });
        assert.notEqual(status, 403);
        assert.deepEqual([headers["access-control-allow-origin"], headers.vary], [listed, "origin"]);
      }
      for (const other of ["https://evil.example", "https://page.example:8443", "null"]) {
        const { status, body, headers } = await ask(method, { origin: other });
        assert.deepEqual([status, JSON.parse(body).error.code], [403, "forbidden"]);
        assert.deepEqual([headers["access-control-allow-origin"], headers.vary], [undefined, "origin"]);
      }
      const own = await ask(method, { origin: "https://chat.example" });
      assert.notEqual(own.status, 403);
      assert.equal(own.headers["access-control-allow-origin"], undefined);
    }
    const any = await request(setUp().app, "GET", "/v1/models", { headers: { host: "evil.example", origin: "null" } });
    assert.deepEqual([any.status, any.headers["access-control-allow-origin"]], [200, "*"]);
  });

  it("serves only known hosts if cors_origins is set", async () => {
    const { app, inference } = setUp({
      config: { corsOrigins: ["https://page.example"], allowedHosts: ["chat.example"] },
    });
    const statusBy = async (host: string) =>
      (await request(app, "POST", path, { ...chat, headers: { "content-type": "application/json", host } })).status;
    for (const host of ["localhost:1234", "127.0.0.1", "[::1]:80", "10.1.2.3", "chat.example"]) {
      assert.equal(await statusBy(host), 200, host);
    }
    const runs = inference.runs.length;
    for (const host of ["evil.example", "", "page.example"]) assert.equal(await statusBy(host), 403, host);
    assert.equal(inference.runs.length, runs);
  });

  it("serves engine metrics as Prometheus text on /metrics, and 503 if disabled", async () => {
    const { status, body, headers } = await request(setUp().app, "GET", "/metrics");
    assert.deepEqual([status, headers["content-type"]], [200, "text/plain; version=0.0.4; charset=utf-8"]);
    assert.match(body, /^# TYPE service_sequences_running gauge\nservice_sequences_running 3$/m);
    assert.match(body, /^service_sequences_completed_total\{reason="stop"\} 7$/m);
    const off = await request(setUp({ config: { disableMetrics: true } }).app, "GET", "/metrics");
    assert.deepEqual([off.status, JSON.parse(off.body).error.code], [503, "metrics_disabled"]);
  });

  it("finds no route for a name of Object.prototype", async () => {
    for (const at of ["__proto__", "/toString", "", "*"]) {
      assert.equal((await request(setUp().app, "GET", at)).status, 404);
    }
  });

  const statuses: readonly (readonly [ErrorCode, number, string, string | undefined])[] = [
    ["context_length_exceeded", 400, "invalid_request_error", undefined],
    ["model_not_found", 404, "invalid_request_error", undefined],
    ["conflict", 409, "invalid_request_error", undefined],
    ["queue_full", 429, "rate_limit_error", "1"],
    ["queue_timeout", 503, "server_error", "5"],
    ["mailbox_full", 429, "rate_limit_error", "1"],
    ["model_loading", 503, "server_error", "2"],
    ["draining", 503, "server_error", "5"],
    ["timeout", 503, "server_error", "1"],
    ["model_failed", 503, "server_error", "1"],
    ["peer_gone", 503, "server_error", "1"],
    ["internal", 500, "server_error", undefined],
  ];
  for (const [code, status, type, retryAfter] of statuses) {
    for (const stream of [false, true]) {
      it(`answers ${code} with ${status}, ${stream ? "for a stream" : "for a whole answer"}`, async () => {
        const { app } = setUp({ script: () => [[failure(code, "because")]] });
        const reply = await request(app, "POST", path, { body: { messages: "hi", stream } });
        assert.equal(reply.status, status);
        assert.equal(reply.headers["retry-after"], retryAfter);
        assert.deepEqual(JSON.parse(reply.body), { error: { message: "because", type, param: null, code } });
      });
    }
  }

  it("has the retry-after of the thrower", async () => {
    const error = { code: "queue_full", message: "full", retryAfterSeconds: 17 } as const;
    const { app } = setUp({ script: () => [[{ type: "error", error }]] });
    const reply = await request(app, "POST", path, chat);
    assert.deepEqual([reply.status, reply.headers["retry-after"]], [429, "17"]);
    assert.deepEqual(Object.keys(JSON.parse(reply.body).error), ["message", "type", "param", "code"]);
  });

  it("refuses inference on every route while it drains, and nothing else", async () => {
    const { app, inference } = setUp();
    app.drain();
    for (const [at, body] of [
      [path, { messages: "hi" }],
      ["/v1/completions", { prompt: "hi" }],
    ] as const) {
      const reply = await request(app, "POST", at, { body });
      assert.deepEqual([reply.status, reply.headers["retry-after"]], [503, "5"]);
      assert.equal(JSON.parse(reply.body).error.code, "draining");
    }
    assert.equal(inference.runs.length, 0);
    for (const at of ["/health", "/v1/models"]) assert.equal((await request(app, "GET", at)).status, 200);
  });

  it("counts the values of a body, not the commas in its text", async () => {
    const said = '\\",'.repeat(200_000);
    const { app, inference } = setUp();
    assert.equal((await request(app, "POST", path, { body: { messages: said } })).status, 200);
    // A text worker reads bodies of this length.
    const { prompt } = inference.lastRun.request;
    assert.ok(prompt.kind === "sealed");
    const opened = openContent(prompt).prompt;
    assert.equal(opened.kind === "chat" && opened.messages[0]!.content, said);
    const reply = await request(app, "POST", path, { body: { messages: "hi", stop: Array(200_002).fill("a") } });
    assert.match(JSON.parse(reply.body).error.message, /at most 200000 values/);
  });

  it("counts lists and objects as values at any depth", async () => {
    const { app } = setUp();
    const post = (body: string) =>
      request(app, "POST", path, { body, headers: { "content-type": "application/json" } });
    const deep = (open: string, close: string) => `{"messages":${open.repeat(300_000)}1${close.repeat(300_000)}}`;
    for (const body of [deep("[", "]"), deep('{"a":', "}")]) {
      assert.match(JSON.parse((await post(body)).body).error.message, /at most 200000 values/);
    }
  });

  it("streams no line end within a line, also none that only Python knows", async () => {
    const ends = "a\u0085b\u2028c\u2029d\ne";
    const token = { token: ends, bytes: [97], logprob: -1 };
    const messages = [{ role: "user", content: "hi" }];
    for (const length of [1, 3000]) {
      const logprobs = new Array(length).fill({ ...token, top: [token] });
      const { app, inference } = setUp();
      inference.script = () => [[text(ends, 0, logprobs)], [failure("timeout", ends)]];
      for (const [streamed, body] of [
        [path, { messages, logprobs: true }],
        ["/v1/messages", { messages }],
        ["/v1/responses", { input: "hi", include: ["message.output_text.logprobs"] }],
        ["/api/chat", { messages, logprobs: true }],
      ] as const) {
        const reply = await request(app, "POST", streamed, { body: { ...body, stream: true } });
        assert.equal(reply.status, 200, reply.body);
        assert.doesNotMatch(reply.body, /[\u0085\u2028\u2029]/);
        const lines = reply.body.split("\n").flatMap((line) => /^(?:data: )?(\{.*)$/.exec(line)?.[1] ?? []);
        const said = lines.map((line) => JSON.stringify(JSON.parse(line)));
        assert.ok(
          said.some((line) => line.includes(JSON.stringify(ends))),
          streamed,
        );
      }
    }
  });

  it("refuses values that are nested too deeply to be stored, also in fields that are ignored", async () => {
    const { app } = setUp();
    const status = async (depth: number, pad = "") => {
      const annotations = `${"[".repeat(depth)}${"]".repeat(depth)}`;
      const content = `[{"type":"output_text","text":"${pad}","annotations":${annotations}}]`;
      const body = `{"input":[{"role":"assistant","content":${content}},{"role":"user","content":"[{"}]}`;
      const headers = { "content-type": "application/json" };
      const reply = await request(app, "POST", "/v1/responses", { body, headers });
      return [reply.status, JSON.parse(reply.body).error?.message ?? null];
    };
    for (const pad of ["", "x".repeat(70_000)]) {
      assert.deepEqual(await status(990, pad), [200, null]);
      const refusal = "expected a body nested at most 1000 deep, got 20005 levels";
      assert.deepEqual(await status(20_000, pad), [400, refusal]);
    }
  });

  it("reads a content type of any length quickly, and quotes a part of it", async () => {
    const startedAt = performance.now();
    for (const contentType of [`application/json${" ".repeat(60_000)}x`, `application/${"a".repeat(60_000)}+json`]) {
      const reply = await request(setUp().app, "POST", path, { body: "{}", headers: { "content-type": contentType } });
      assert.deepEqual([reply.status, JSON.parse(reply.body).error.code], [415, "invalid_content_type"]);
      assert.ok(reply.body.length < 500, reply.body);
    }
    assert.ok(performance.now() - startedAt < 500);
  });

  it("accepts application/json and +json types in UTF-8 without other parameters", async () => {
    const statusOf = async (contentType: string) =>
      (
        await request(setUp().app, "POST", path, {
          body: '{"messages":"hi"}',
          headers: { "content-type": contentType },
        })
      ).status;
    for (const parameter of ["", ";", " ; charset=utf-8", ';charset="UTF8"', "; Charset=Utf-8 ;"]) {
      for (const type of ["application/json", "Application/JSON", "application/vnd.a-b+json"]) {
        assert.equal(await statusOf(type + parameter), 200, type + parameter);
      }
    }
    for (const type of ["text/json", "application/jsonx", "application/+json", "application/json;;", ""]) {
      assert.equal(await statusOf(type), 415, type);
    }
    for (const parameter of ["; charset=latin1", "; x=y", ";charset=utf-8;x=y", ";;charset=utf-8"]) {
      assert.equal(await statusOf(`application/json${parameter}`), 415, parameter);
    }
  });

  it("limits the length of errors with client-sent names", async () => {
    const long = "k".repeat(100_000);
    for (const [body, config] of [
      [{ [long]: 1 }, { unknownFields: "refuse" }],
      [{ logit_bias: { [long]: 1 } }, {}],
      [{ model: long }, {}],
    ] as const) {
      const reply = await request(setUp({ config }).app, "POST", path, { body: { messages: "hi", ...body } });
      assert.equal(reply.status, 400);
      assert.ok(reply.body.length < 1000, `${reply.body.length} characters`);
    }
  });

  it("fails a generation without a final event, whole or streamed", async () => {
    const { app, inference } = setUp({ script: () => [] });
    assert.equal(JSON.parse((await request(app, "POST", path, chat)).body).error.code, "peer_gone");
    inference.script = () => [[{ type: "text", choice: 0, text: "a" }]];
    const reply = await request(app, "POST", path, { body: { messages: "hi", stream: true } });
    assert.match(reply.body, /"code":"peer_gone"\}\}\n\ndata: \[DONE\]\n\n$/);
  });

  it("hides internal errors, and logs them with the request id", async () => {
    const { app, inference, log } = setUp({ config: { accessLog: false } });
    inference.resolveModel = () => {
      throw new TypeError("secret");
    };
    const reply = await request(app, "POST", path, {
      ...chat,
      headers: { "content-type": "application/json", "x-request-id": "r1" },
    });
    assert.equal(reply.status, 500);
    assert.ok(!reply.body.includes("secret"));
    assert.match(reply.body, /under request id r1/);
    assert.equal(log.lines.length, 1);
    assert.equal(log.lines[0]!.level, "error");
    assert.match(String(log.lines[0]!.fields.err), /secret/);
  });

  it("omits x-request-id if configured", async () => {
    const { headers } = await request(setUp({ config: { disableRequestIdHeader: true } }).app, "GET", "/");
    assert.ok(!("x-request-id" in headers));
  });

  it("logs health only if configured, and nothing without the access log", async () => {
    const lines = async (config: Partial<HttpConfig>) => {
      const { app, log } = setUp({ config });
      await request(app, "GET", "/health");
      await request(app, "GET", "/v1/models");
      return log.lines.map((line) => line.fields.path);
    };
    assert.deepEqual(await lines({}), ["/v1/models"]);
    assert.deepEqual(await lines({ accessLogHealth: true }), ["/health", "/v1/models"]);
    assert.deepEqual(await lines({ accessLog: false, accessLogHealth: true }), []);
  });

  it("logs a client that left before its response as 499", async () => {
    const { app, log, inference } = setUp({ script: () => [{ waitMs: 60_000 }] });
    const aborter = new AbortController();
    for (const stream of [true, false]) {
      void request(app, "POST", path, { body: { messages: "hi", stream }, signal: aborter.signal });
    }
    aborter.abort();
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.deepEqual(
      log.lines.map((line) => line.fields.status),
      [499, 499],
    );
    assert.deepEqual(
      inference.runs.map((run) => run.state),
      ["cancelled", "cancelled"],
    );
  });
});
