// Unknown fields of a request: ignored and reported, or rejected. Misspelt names of known fields are always rejected.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import { dispatch } from "../../../../http/mcp/dispatch.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const chat = "/v1/chat/completions";

function setUp(config: Partial<HttpConfig> = {}) {
  const log = recordingLog();
  const inference = new FakeInference();
  const app = createApp({ inference, log, config: { accessLog: false, ...config } });
  const send = async (body: object, path = chat) => {
    const reply = await request(app, "POST", path, { body: { messages: "hi", ...body } });
    const { error = null } = reply.status === 200 ? {} : JSON.parse(reply.body);
    return { ...reply, error, ignored: reply.headers["x-ignored-fields"] };
  };
  return { app, inference, log, send };
}

/** Request body with unknown fields at every level where clients send them. */
const extended = {
  messages: [
    { role: "user", content: [{ type: "text", text: "hi", cache_control: {} }], tool_call_id: null },
    {
      role: "assistant",
      tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}", extra: 1 }, provider: "x" }],
      citations: [],
    },
    { role: "tool", tool_call_id: "a", content: "1", status: "success" },
  ],
  tools: [{ type: "function", function: { name: "f", title: "F" }, eager: true }],
  response_format: { type: "text", version: 2 },
  stream_options: { chunk_size: 1 },
  top_a: 0.1,
};

const found = [
  "messages[].content[].cache_control",
  "messages[].tool_call_id",
  "messages[].tool_calls[].function.extra",
  "messages[].tool_calls[].provider",
  "messages[].citations",
  "messages[].status",
  "stream_options.chunk_size",
  "response_format.version",
  "tools[].function.title",
  "tools[].eager",
  "top_a",
];

describe("an unknown field", () => {
  it("is ignored at every level, listed in the header, and logged once", async () => {
    const { send, log, inference } = setUp();
    for (let i = 0; i < 2; i++) {
      const reply = await send(extended);
      assert.equal(reply.status, 200, reply.body);
      assert.deepEqual(new Set(reply.ignored?.split(", ")), new Set(found));
      assert.match(reply.headers["access-control-expose-headers"]!, /x-ignored-fields/);
    }
    const told = log.lines.map(({ fields }) => fields.field);
    assert.deepEqual(new Set(told), new Set(found));
    assert.equal(told.length, found.length);
    const { prompt } = inference.lastRun.request;
    assert.ok(prompt.kind === "chat" && prompt.messages[1]?.toolCalls?.[0]?.name === "f");
    assert.equal((await send({})).ignored, undefined);
  });

  it("is ignored in a long body too, which a text worker translates", async () => {
    const { send } = setUp();
    const long = { messages: [{ role: "user", content: "a ".repeat(50_000), mood: "good" }] };
    assert.equal((await send({ ...long, top_a: 1 })).ignored, "messages[].mood, top_a");
    const refused = await setUp({ unknownFields: "refuse" }).send(long);
    assert.deepEqual([refused.status, refused.error.param], [400, "messages[0].mood"]);
  });

  it("is ignored by all inference routes", async () => {
    const { app } = setUp();
    const bodies: Readonly<Record<string, object>> = {
      "/v1/completions": { prompt: "a" },
      "/v1/embeddings": { input: "a" },
      "/v1/messages": { messages: [{ role: "user", content: "a" }], max_tokens: 5 },
      "/v1/messages/count_tokens": { messages: [{ role: "user", content: "a" }] },
      "/v1/responses": { input: [{ role: "user", content: "a" }], store: false },
      "/v1/responses/input_tokens": { input: "a" },
      "/v1/rerank": { query: "a", documents: ["b"] },
      "/rerank": { query: "a", documents: ["b"] },
      "/tokenize": { content: "a" },
      "/detokenize": { tokens: [1] },
      "/api/chat": { messages: [{ role: "user", content: "a" }] },
      "/api/generate": { prompt: "a" },
      "/api/embed": { input: "a" },
      "/api/embeddings": { prompt: "a" },
      "/api/show": { model: "tiny" },
    };
    for (const [path, body] of Object.entries(bodies)) {
      const { status, headers, body: text } = await request(app, "POST", path, { body: { ...body, zebra: 1 } });
      assert.deepEqual([status, headers["x-ignored-fields"]], [200, "zebra"], path + text);
    }
  });

  it("is ignored among the options of Ollama's protocol", async () => {
    const { send } = setUp();
    const options = { num_ctx: 5, temperature: 0.5, zebra: 1 };
    const bodies = { "/api/chat": { messages: [] }, "/api/generate": { prompt: "a", messages: undefined } };
    for (const [path, body] of Object.entries(bodies)) {
      assert.equal((await send({ ...body, options }, path)).ignored, "options.zebra", path);
      const { status } = await send({ ...body, options: { temprature: 1 } }, path);
      assert.equal(status, 400, path);
    }
  });

  it("is reported to the caller of a tool", async () => {
    const { app } = setUp();
    const signal = new AbortController().signal;
    const caller = { headers: new Map(), address: "", signal } as unknown as Parameters<typeof dispatch>[1]["caller"];
    const body = { messages: "hi", zebra: 1 };
    const { status, ignored } = await dispatch(app, { path: chat, body, caller, requestId: "r", signal });
    assert.deepEqual([status, ignored], [200, "zebra"]);
  });

  it("does not hide other errors, and is reported with them", async () => {
    const { status, error, ignored } = await setUp().send({ zebra: 1, temperature: 5 });
    assert.deepEqual([status, error.param, ignored], [400, "temperature", undefined]);
  });

  it("is safe whatever its name is, and however many there are", async () => {
    const { app, log, send } = setUp();
    const body = '{"messages":"hi","__proto__":{"stream":true},"constructor":1}';
    const reply = await request(app, "POST", chat, { body, headers: { "content-type": "application/json" } });
    assert.deepEqual([reply.status, reply.headers["x-ignored-fields"]], [200, "__proto__, constructor"]);
    const odd = await send({ "a\r\nb: c, é": 1, ["x".repeat(500)]: 2 });
    assert.equal(odd.ignored, `a??b:?c???, ${"x".repeat(60)}`);
    for (let i = 0; i < 30; i++) {
      const names = Array.from({ length: 100 }, (_, j) => [`field-${i}-${j}`, 1]);
      const { status, ignored } = await send(Object.fromEntries(names));
      assert.equal(status, 200);
      assert.match(ignored!, /^field-.{900,1100} \d+ more$/);
    }
    assert.ok(log.lines.length <= 1000, `${log.lines.length} lines`);
  });

  it("is refused by its setting, with the nearest known name", async () => {
    const { send } = setUp({ unknownFields: "refuse" });
    for (const [body, param] of [
      [{ zebra: 1 }, "zebra"],
      [{ messages: extended.messages }, "messages[0].content[0].cache_control"],
      [{ tools: extended.tools }, "tools[0].function.title"],
    ] as const) {
      const { status, error } = await send(body);
      assert.deepEqual([status, error.code, error.param], [400, "invalid_value", param]);
    }
  });
});

describe("a misspelt field", () => {
  const misspelt = [
    [{ max_token: 5 }, "max_token", "max_tokens"],
    [{ temprature: 1 }, "temprature", "temperature"],
    [{ temperatuer: 1 }, "temperatuer", "temperature"],
    [{ maxTokens: 5 }, "maxTokens", "max_tokens"],
    [{ TOP_P: 0.5 }, "TOP_P", "top_p"],
    [{ seeds: 1 }, "seeds", "seed"],
    [{ messages: [{ role: "user", contents: "x", content: "y" }] }, "messages[0].contents", "content"],
    [{ tools: [{ type: "function", function: { name: "f", stritc: true } }] }, "tools[0].function.stritc", "strict"],
  ] as const;
  for (const [body, param, name] of misspelt) {
    it(`is refused: ${param}`, async () => {
      const { status, error } = await setUp().send(body);
      assert.deepEqual([status, error.param], [400, param]);
      assert.ok(error.message.endsWith(`did you mean "${name}"?`), error.message);
    });
  }

  it("is not a name that other servers have, or a short one", async () => {
    const { status, ignored } = await setUp().send({ top_a: 1, models: ["a"], mode: "x", m: 1, typical_p: 1 });
    assert.deepEqual([status, ignored], [200, "top_a, models, mode, m, typical_p"]);
  });
});
