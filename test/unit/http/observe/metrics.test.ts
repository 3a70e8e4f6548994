import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as settled } from "node:timers/promises";
import { Histogram, Registry } from "prom-client";
import type { EngineMetric } from "../../../../actors/api/engine-metric.ts";
import { createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import { engineRegistry } from "../../../../http/observe/metrics/engine-registry.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { FakeInference, failure, type Script } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const chatPath = "/v1/chat/completions";
const json = { "content-type": "application/json" };

function setUp(options: { script?: Script; config?: Partial<HttpConfig> } = {}) {
  const inference = new FakeInference(options.script);
  const app = createApp({ inference, log: recordingLog(), config: options.config ?? {} });
  const text = async () => {
    // A request is counted when its handler has returned, shortly after its response.
    await settled();
    return (await request(app, "GET", "/metrics")).body;
  };
  /** Returns the samples of a metric, by labels. */
  const samples = async (name: string) => {
    const lines = (await text()).split("\n").filter((line) => line.startsWith(`${name}{`));
    return Object.fromEntries(lines.map((line) => /^\w+(\{.*\}) (.*)$/.exec(line)!.slice(1)));
  };
  return { inference, app, text, samples };
}

const labels = (method: string, path: string, model: string, status: number) =>
  `{method="${method}",path="${path}",model="${model}",status="${status}"}`;

describe("the metrics of requests", () => {
  it("are counted by method, route pattern, model and status", async () => {
    const { app, samples } = setUp();
    await request(app, "POST", chatPath, { body: { messages: "hi" } });
    await request(app, "POST", chatPath, { body: { messages: "hi", model: "other", stream: true } });
    await request(app, "POST", "/v1/embeddings", { body: { input: "hi", model: "default" } });
    await request(app, "GET", "/v1/models");
    await request(app, "GET", "/v1/models");
    await request(app, "BREW", "/coffee/4711");
    assert.deepEqual(await samples("http_requests_total"), {
      [labels("POST", chatPath, "tiny", 200)]: "1",
      [labels("POST", chatPath, "other", 200)]: "1",
      [labels("POST", "/v1/embeddings", "tiny", 200)]: "1",
      [labels("GET", "/v1/models", "none", 200)]: "2",
      [labels("<other>", "<unmatched>", "none", 404)]: "1",
    });
  });

  it("label a refused request with its model, or `unknown` if it is unreadable or unknown", async () => {
    const { app, samples } = setUp({ script: () => [[failure("queue_full")]] });
    const refused: unknown[] = [
      { messages: "hi", temperature: "hot" },
      { model: "other", messages: 5 },
      { model: "no-such-model", messages: "hi" },
      { messages: "hi" },
    ];
    for (const body of refused) await request(app, "POST", chatPath, { body });
    await request(app, "POST", chatPath, { body: "{", headers: json });
    await request(app, "POST", chatPath, { body: "{}", headers: { "content-type": "text/plain" } });
    assert.deepEqual(await samples("http_requests_total"), {
      [labels("POST", chatPath, "tiny", 400)]: "1",
      [labels("POST", chatPath, "other", 400)]: "1",
      [labels("POST", chatPath, "unknown", 404)]: "1",
      [labels("POST", chatPath, "tiny", 429)]: "1",
      [labels("POST", chatPath, "unknown", 400)]: "1",
      [labels("POST", chatPath, "unknown", 415)]: "1",
    });
  });

  it("label adapter and management requests with their model, or `unknown`", async () => {
    const inference = new FakeInference();
    const [tiny, other] = inference.entries;
    inference.entries = [{ ...tiny!, adapters: [{ alias: "a", generation: "0", createdAt: 1 }] }, other!];
    const app = createApp({ inference, log: recordingLog(), config: { allowLoraUpdates: true } });
    const [list, load, status] = ["/v1/lora_adapters", "/v1/load_lora_adapter", "/v1/models/status"];
    for (const query of ["", "model=other", "model=nobody", "modle=x", "model=tiny%3A%3Aa"]) {
      await request(app, "GET", list, { query });
    }
    for (const body of [{ lora_name: 1 }, { lora_name: 1, model: "other" }, { model: "nobody" }]) {
      await request(app, "POST", load, { body });
    }
    await request(app, "POST", load, { body: "{", headers: json });
    for (const body of [{ model_id: "other" }, { model_id: "nobody" }, { model_id: "tiny", more: 1 }, {}]) {
      await request(app, "POST", status, { body });
    }
    await request(app, "POST", status, { body: "{", headers: json });
    await request(app, "POST", chatPath, { body: { messages: "hi", model: "tiny::a" } });
    // The server ends the HTTP exchange a moment after it has sent the response.
    await new Promise(setImmediate);
    const { body } = await request(app, "GET", "/metrics");
    const counted = body.split("\n").filter((line) => line.startsWith("http_requests_total{"));
    assert.deepEqual(Object.fromEntries(counted.map((line) => line.slice("http_requests_total".length).split(" "))), {
      [labels("GET", list, "tiny", 409)]: "1",
      [labels("GET", list, "other", 409)]: "1",
      [labels("GET", list, "unknown", 404)]: "1",
      [labels("GET", list, "tiny", 400)]: "2",
      [labels("POST", load, "tiny", 422)]: "1",
      [labels("POST", load, "other", 422)]: "1",
      [labels("POST", load, "unknown", 422)]: "1",
      [labels("POST", load, "unknown", 400)]: "1",
      [labels("POST", status, "other", 200)]: "1",
      [labels("POST", status, "unknown", 404)]: "1",
      [labels("POST", status, "tiny", 400)]: "1",
      [labels("POST", status, "unknown", 400)]: "2",
      [labels("POST", chatPath, "tiny", 200)]: "1",
    });
  });

  it("label a request refused while draining with its model", async () => {
    const { app, samples } = setUp();
    app.drain();
    await request(app, "POST", chatPath, { body: { messages: "hi", model: "other" } });
    await request(app, "POST", chatPath, { body: { messages: "hi" } });
    await request(app, "POST", chatPath, { body: "{", headers: json });
    assert.deepEqual(await samples("http_requests_total"), {
      [labels("POST", chatPath, "other", 503)]: "1",
      [labels("POST", chatPath, "tiny", 503)]: "1",
      [labels("POST", chatPath, "unknown", 503)]: "1",
    });
  });

  it("omit operations of any method, and preflights", async () => {
    const { app, samples } = setUp();
    for (const path of ["/health", "/", "/metrics", "/docs", "/api-doc/openapi.json"]) await request(app, "GET", path);
    await request(app, "HEAD", "/health");
    await request(app, "OPTIONS", chatPath);
    await request(app, "OPTIONS", "/nowhere");
    for (const path of ["/health", "/metrics", "/docs/none.css"]) await request(app, "DELETE", path);
    assert.deepEqual(await samples("http_requests_total"), {});
    assert.deepEqual(await samples("http_requests_in_flight"), {});
  });

  it("count a client that left before its response as status 499", async () => {
    const { app, samples } = setUp({ script: () => [{ waitMs: 60_000 }] });
    const aborter = new AbortController();
    void request(app, "POST", chatPath, { body: { messages: "hi" }, signal: aborter.signal });
    const inFlight = `{method="POST",path="${chatPath}",model="tiny"}`;
    assert.deepEqual(await samples("http_requests_in_flight"), { [inFlight]: "1" });
    aborter.abort();
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.deepEqual(await samples("http_requests_in_flight"), { [inFlight]: "0" });
    assert.deepEqual(await samples("http_requests_total"), { [labels("POST", chatPath, "tiny", 499)]: "1" });
  });

  it("have buckets for slow responses and large bodies", async () => {
    const { app, text } = setUp();
    const body = JSON.stringify({ messages: "x".repeat(5000) });
    await request(app, "POST", chatPath, { body, headers: { ...json, "content-length": `${body.length}` } });
    await request(app, "GET", "/v1/models");
    const lines = (await text()).split("\n");
    const of = (name: string) => lines.filter((line) => line.startsWith(name)).map((line) => line.split(" ").at(-1));
    assert.deepEqual(of("http_request_body_bytes_sum"), [`${body.length}`]);
    assert.deepEqual(of("http_request_duration_seconds_count"), ["1", "1"]);
    assert.ok(lines.some((line) => line.startsWith('http_request_duration_seconds_bucket{le="600",')));
    assert.ok(lines.some((line) => line.startsWith('http_request_body_bytes_bucket{le="52428800",')));
    assert.equal(new Set(lines.filter((line) => /^# TYPE (?:http|service)_/.test(line))).size, 4 + 2);
  });

  it("count the declared size of a body that was refused unread", async () => {
    const { app, text } = setUp();
    const refusal = new ServerError("body_too_large", "too large");
    const headers = new Map([["content-length", "99999999"]]);
    const body = { body: new Uint8Array(0), bodyBytes: 0, releaseBody: () => {}, holdBody: () => () => {} };
    const refused = { method: "POST", path: chatPath, query: "", headers, ...body, address: "" };
    const reply = { send: () => {}, stream: () => assert.fail("no stream is begun") };
    app.handle({ ...refused, signal: new AbortController().signal }, reply, refusal);
    const lines = await text();
    assert.match(lines, /http_request_body_bytes_sum\{.*model="unknown"\} 99999999/);
    assert.match(lines, /http_requests_total\{.*model="unknown",status="413"\} 1/);
  });

  it("are neither counted nor served if disabled", async () => {
    const { app } = setUp({ config: { disableMetrics: true } });
    await request(app, "GET", "/v1/models");
    const reply = await request(app, "GET", "/metrics");
    assert.deepEqual([reply.status, JSON.parse(reply.body).error.code], [503, "metrics_disabled"]);
  });
});

describe("the metrics of engines", () => {
  it("print a histogram as prom-client does", async () => {
    const registers = [new Registry()];
    const own = {
      name: "wait_seconds",
      help: "a wait",
      labelNames: ["method", "path", "model", "status"],
      buckets: [0.1, 0.5, 2],
      registers,
    };
    const histogram = new Histogram(own);
    const observed = { method: "POST", path: "/v1", model: 'a"b\\c', status: "200" };
    for (const value of [0.05, 0.1, 0.3, 1, 3, 7]) histogram.observe(observed, value);
    const metric: EngineMetric = {
      ...{ name: "wait_seconds", kind: "histogram", help: "a wait", bounds: [0.1, 0.5, 2] },
      samples: [{ series: "/v1", model: observed.model, counts: [2, 1, 1, 2], sumSeconds: 11.45 }],
    };
    assert.equal(await engineRegistry([metric]).metrics(), await registers[0]!.metrics());
  });

  it("print a metric without samples by its name", async () => {
    const metric: EngineMetric = { name: "none_total", kind: "counter", help: "nothing yet", samples: [] };
    assert.equal(
      await engineRegistry([metric]).metrics(),
      "# HELP none_total nothing yet\n# TYPE none_total counter\n",
    );
  });
});
