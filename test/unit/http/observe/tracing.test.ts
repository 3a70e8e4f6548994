import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createApp } from "../../../../http/app.ts";
import { Tracing } from "../../../../http/observe/tracing/tracing.ts";
import { FakeInference, failure, finish, text, usage } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const chatPath = "/v1/chat/completions";

interface WireSpan {
  readonly traceState?: string;
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly { readonly key: string; readonly value: Record<string, unknown> }[];
  readonly status: { readonly code?: number; readonly message?: string };
}

/** Fake trace collector that stores the spans it receives. */
class Collector {
  readonly spans: WireSpan[] = [];
  readonly resources: unknown[] = [];
  readonly paths: (string | undefined)[] = [];
  status = 200;
  /** Promise that the collector waits for before it responds. */
  ready: Promise<void> = Promise.resolve();
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (incoming, response) => {
      this.paths.push(incoming.url);
      await this.ready;
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) chunks.push(chunk as Buffer);
      for (const { resource, scopeSpans } of JSON.parse(Buffer.concat(chunks).toString()).resourceSpans) {
        this.resources.push(resource);
        this.spans.push(...scopeSpans.flatMap(({ spans }: { spans: WireSpan[] }) => spans));
      }
      response.writeHead(this.status, { "content-type": "application/json" }).end("{}");
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const collectors: Collector[] = [];
after(() => {
  for (const collector of collectors) collector.close();
});

async function setUp() {
  const collector = new Collector();
  collectors.push(collector);
  const log = recordingLog();
  const tracing = new Tracing({ endpoint: `${await collector.listen()}/`, version: "1.2.3", log });
  const inference = new FakeInference();
  return { collector, tracing, inference, log, app: createApp({ inference, log, observers: [tracing] }) };
}

/** Closes tracing once the HTTP exchange has ended, which is a moment after the response arrives. */
async function close(tracing: Tracing): Promise<void> {
  await new Promise(setImmediate);
  await tracing.close();
}

function attributesOf({ attributes }: WireSpan): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}

const ms = (nanoseconds: string) => Number(BigInt(nanoseconds) / 1_000_000n);

describe("traces", () => {
  it("have a span per request with spans of its stages", async () => {
    const { collector, tracing, inference, app } = await setUp();
    const start = Date.now();
    const timeline = {
      startedAt: start + 1,
      queuedAt: start + 4,
      scheduledAt: start + 9,
      firstTokenAt: start + 20,
      endedAt: start + 50,
    };
    inference.script = () => [[text("Hello")], [finish("length")], [{ type: "done", usage: { ...usage, timeline } }]];
    const headers = { "content-type": "application/json", "x-request-id": "r-1", "user-agent": "u".repeat(1000) };
    await request(app, "POST", chatPath, { body: '{"messages":"hi","stream":true}', headers });
    await request(app, "GET", "/v1/models");
    await close(tracing);
    assert.deepEqual(collector.paths, ["/v1/traces"]);
    const server = collector.spans.find(({ kind }) => kind === 2)!;
    assert.equal(server.name, `POST ${chatPath}`);
    assert.ok(!server.parentSpanId);
    assert.ok(Math.abs(ms(server.startTimeUnixNano) - start) < 1000);
    const stages = collector.spans.filter((span) => span !== server);
    assert.deepEqual(
      stages.map(({ name, startTimeUnixNano, endTimeUnixNano }) => [name, ms(startTimeUnixNano), ms(endTimeUnixNano)]),
      [
        ["template+tokenise", start + 1, start + 4],
        ["queue", start + 4, start + 9],
        ["prefill", start + 9, start + 20],
        ["decode", start + 20, start + 50],
      ],
    );
    for (const { traceId, parentSpanId } of stages) {
      assert.deepEqual([traceId, parentSpanId], [server.traceId, server.spanId]);
    }
    const attributes = attributesOf(server);
    const plain = Object.entries(attributes).filter(([, value]) => typeof value !== "object");
    assert.deepEqual(Object.fromEntries(plain.filter(([key]) => !key.endsWith(".body.size"))), {
      "http.request.method": "POST",
      "http.route": chatPath,
      "url.path": chatPath,
      "url.scheme": "http",
      "client.address": "127.0.0.1",
      "user_agent.original": "u".repeat(200),
      "http.response.status_code": 200,
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "troupe",
      "gen_ai.request.model": "tiny",
      "gen_ai.usage.input_tokens": 8,
      "gen_ai.usage.output_tokens": 4,
    });
    assert.deepEqual(attributes["gen_ai.response.finish_reasons"], { values: [{ stringValue: "length" }] });
    assert.deepEqual(attributes["http.response.header.x-request-id"], { values: [{ stringValue: "r-1" }] });
    assert.match(JSON.stringify(collector.resources), /"service.name","value":\{"stringValue":"troupe"\}/);
  });

  it("continue the caller's trace unless it is not sampled, and start one for an invalid header", async () => {
    const { collector, tracing, app } = await setUp();
    const [trace, span] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
    const send = (traceparent: string) => {
      const headers = { "content-type": "application/json", traceparent };
      return request(app, "POST", chatPath, { body: '{"messages":"hi"}', headers });
    };
    await send(`00-${trace}-${span}-01`);
    await send(`00-${trace}-${span}-00`);
    await send(`00-${"0".repeat(32)}-${span}-01`);
    await send("nonsense");
    await close(tracing);
    const servers = collector.spans.filter(({ kind }) => kind === 2);
    assert.deepEqual(
      servers.map(({ traceId, parentSpanId }) => [traceId === trace, parentSpanId || null]),
      [
        [true, span],
        [false, null],
        [false, null],
      ],
    );
  });

  it("pass on the state of other tracing systems", async () => {
    const { collector, tracing, app } = await setUp();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const headers = { "content-type": "application/json", traceparent, tracestate: "vendor=a:1,other=b" };
    await request(app, "POST", chatPath, { body: '{"messages":"hi"}', headers });
    await request(app, "POST", chatPath, {
      body: '{"messages":"hi"}',
      headers: { ...headers, tracestate: "no state" },
    });
    await close(tracing);
    const states = collector.spans.filter(({ kind }) => kind === 2).map(({ traceState }) => traceState || null);
    assert.deepEqual(states, ["vendor=a:1,other=b", null]);
  });

  it("mark failed and abandoned requests", async () => {
    const { collector, tracing, inference, app } = await setUp();
    inference.script = () => [[text("a")], [failure("model_failed", "it died")]];
    await request(app, "POST", chatPath, { body: { messages: "hi", stream: true } });
    await sleep(3);
    await request(app, "POST", chatPath, { body: { messages: 5 } });
    await sleep(3);
    const aborter = new AbortController();
    aborter.abort();
    void request(app, "POST", chatPath, { body: { messages: "hi" }, signal: aborter.signal });
    await close(tracing);
    const ended = collector.spans.toSorted((a, b) => (a.startTimeUnixNano < b.startTimeUnixNano ? -1 : 1));
    const seen = ended.map((span) => {
      const attributes = attributesOf(span);
      return [
        attributes["http.response.status_code"],
        attributes["error.type"],
        span.status.code ?? 0,
        span.status.message,
      ];
    });
    assert.deepEqual(seen, [
      [200, "model_failed", 2, "it died"],
      [400, undefined, 0, undefined],
      [undefined, "client_gone", 0, undefined],
    ]);
  });

  it("are lost with a warning if the collector refuses them", async () => {
    const { collector, tracing, log, app } = await setUp();
    collector.status = 400;
    for (let i = 0; i < 2; i++) await request(app, "POST", chatPath, { body: { messages: "hi" } });
    await close(tracing);
    const [complaint, ...others] = log.lines.filter(({ level }) => level === "warn");
    assert.deepEqual([complaint!.fields.lost, others], [2 * 5, []]);
  });

  it("delay the shutdown only up to the deadline if the collector does not respond", async () => {
    const { collector, tracing, app } = await setUp();
    let answer = () => {};
    collector.ready = new Promise((resolve) => {
      answer = resolve;
    });
    await request(app, "POST", chatPath, { body: { messages: "hi" } });
    await new Promise(setImmediate);
    await tracing.close(20);
    assert.deepEqual(collector.spans, []);
    answer();
    while (collector.spans.length === 0) await sleep(1);
  });
});
