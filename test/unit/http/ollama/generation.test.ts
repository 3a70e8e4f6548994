import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { createApp } from "../../../../http/app.ts";
import type { HttpConfig } from "../../../../http/context.ts";
import {
  done,
  FakeInference,
  failure,
  finish,
  hello,
  reasoning,
  type Script,
  text,
  toolCall,
} from "../../../fixtures/fakes/fake-inference.ts";
import { FakeModels } from "../../../fixtures/fakes/fake-models.ts";
import { request, type SocketlessOptions } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

function setUp(script: Script = hello, config: Partial<HttpConfig> = {}) {
  const inference = new FakeInference(script);
  const models = new FakeModels(inference);
  const log = recordingLog();
  const app = createApp({ inference, models, log, config: { accessLog: false, ...config } });
  const send = (path: string, body: object, options: SocketlessOptions = {}) =>
    request(app, "POST", path, { body, ...options });
  return { inference, models, log, app, send };
}

const messages = [{ role: "user", content: "hi" }];
const ask = { model: "tiny", messages };
const linesOf = (body: string) => body.split("\n").map((line) => (line === "" ? "" : JSON.parse(line)));
const scripted =
  (...events: readonly GenerateEvent[]): Script =>
  () => [events];

/** Fields in the last line of a response, computed from the usage that the fake inference reports. */
const metrics = {
  total_duration: 3_000_000_000,
  load_duration: 0,
  prompt_eval_count: 8,
  prompt_eval_duration: 500_000_000,
  eval_count: 4,
  eval_duration: 2_000_000_000,
};

function withoutTime(value: Record<string, unknown>): object {
  const { created_at, ...rest } = value;
  assert.match(String(created_at), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  return rest;
}

describe("POST /api/chat", () => {
  it("streams lines by default, the last with the reason and real figures", async () => {
    const { send } = setUp();
    const { status, headers, body } = await send("/api/chat", ask);
    assert.deepEqual([status, headers["content-type"]], [200, "application/x-ndjson"]);
    const lines = linesOf(body);
    assert.equal(lines.pop(), "");
    const message = (content: string) => ({ role: "assistant", content });
    assert.deepEqual(lines.map(withoutTime), [
      { model: "tiny", message: message("Hello"), done: false },
      { model: "tiny", message: message(" world"), done: false },
      { model: "tiny", message: message(""), done: true, done_reason: "stop", ...metrics },
    ]);
  });

  it("returns one object without a stream, with the model as it was named", async () => {
    const { send } = setUp();
    const { headers, body } = await send("/api/chat", { ...ask, model: "tiny:latest", stream: false });
    assert.equal(headers["content-type"], "application/json");
    assert.deepEqual(withoutTime(JSON.parse(body)), {
      model: "tiny:latest",
      message: { role: "assistant", content: "Hello world" },
      done: true,
      done_reason: "stop",
      ...metrics,
    });
  });

  it("returns reasoning separately, and complete calls with arguments as objects, streamed and not", async () => {
    const events = [
      reasoning("hm"),
      text("See:"),
      ...toolCall("f", ['{"a":', "[1]}"]),
      ...toolCall("g", ["{}"], 1),
      finish("tool_calls"),
      done,
    ];
    const { send } = setUp(scripted(...events));
    const calls = [
      { id: "call_0", function: { index: 0, name: "f", arguments: { a: [1] } } },
      { id: "call_1", function: { index: 1, name: "g", arguments: {} } },
    ];
    const lines = linesOf((await send("/api/chat", ask)).body).slice(0, -1);
    assert.deepEqual(
      lines.map(({ message, done_reason }) => ({ ...message, ...(done_reason && { done_reason }) })),
      [
        { role: "assistant", content: "", thinking: "hm" },
        { role: "assistant", content: "See:" },
        { role: "assistant", content: "", tool_calls: [calls[0]] },
        { role: "assistant", content: "", tool_calls: [calls[1]] },
        { role: "assistant", content: "", done_reason: "stop" },
      ],
    );
    const whole = JSON.parse((await send("/api/chat", { ...ask, stream: false })).body);
    assert.deepEqual(whole.message, { role: "assistant", content: "See:", thinking: "hm", tool_calls: calls });
    assert.equal(whole.done_reason, "stop");
  });

  it("omits a call that the token limit cut, and returns a failed one as text, streamed and not", async () => {
    const [begun, piece] = toolCall("f", ['{"a":']) as [GenerateEvent, GenerateEvent];
    const cut: Script = scripted(begun, piece, { type: "tool_call_cut", choice: 0, call: 0 }, finish("length"), done);
    const text = "<call>";
    const failed: Script = scripted(
      begun,
      piece,
      { type: "tool_call_failed", choice: 0, call: 0, text },
      finish(),
      done,
    );
    for (const [script, content, reason] of [
      [cut, "", "length"],
      [failed, text, "stop"],
    ] as const) {
      const { send } = setUp(script);
      const whole = JSON.parse((await send("/api/chat", { ...ask, stream: false })).body);
      assert.deepEqual([whole.message, whole.done_reason], [{ role: "assistant", content }, reason]);
      const lines = linesOf((await send("/api/chat", ask)).body).slice(0, -1);
      assert.equal(lines.map(({ message }) => message.content).join(""), content);
      assert.ok(lines.every(({ message }) => message.tool_calls === undefined));
      assert.equal(lines.at(-1).done_reason, reason);
    }
  });

  it("has log probabilities if requested", async () => {
    const logprobs = [{ token: "a", bytes: [97], logprob: -0.5, top: [{ token: "b", bytes: [98], logprob: -1 }] }];
    const { send, inference } = setUp(scripted(text("a", 0, logprobs), finish(), done));
    const wire = [{ token: "a", logprob: -0.5, bytes: [97], top_logprobs: [{ token: "b", logprob: -1, bytes: [98] }] }];
    const body = { ...ask, logprobs: true, top_logprobs: 1 };
    const [line] = linesOf((await send("/api/chat", body)).body);
    assert.deepEqual([line.message.content, line.logprobs], ["a", wire]);
    assert.equal(inference.lastRun.request.sampling.topLogprobs, 1);
    const whole = JSON.parse((await send("/api/chat", { ...body, stream: false })).body);
    assert.deepEqual([whole.message.content, whole.logprobs], ["a", wire]);
  });

  it("translates messages, and matches results to calls by id, by name and by order", async () => {
    const { send, inference } = setUp();
    const call = (name: string, id?: string) => ({ ...(id && { id }), function: { name, arguments: { x: 1 } } });
    const { status, body } = await send("/api/chat", {
      messages: [
        { role: "system", content: "be brief", images: [] },
        { role: "user", content: "hi" },
        { role: "assistant", thinking: "hm", tool_calls: [call("f"), call("g"), call("f"), call("h", "own")] },
        { role: "tool", content: "4", tool_call_id: "own" },
        { role: "tool", content: "2", tool_name: "g" },
        { role: "tool", content: "1", tool_name: "f" },
        { role: "tool", content: "3" },
        { role: "tool", content: "?" },
      ],
    });
    assert.equal(status, 200, body);
    const { prompt } = inference.lastRun.request;
    const made = (id: string, name: string) => ({ id, name, arguments: '{"x":1}' });
    assert.deepEqual(prompt.kind === "chat" && prompt.messages, [
      { role: "system", content: "be brief" },
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: "",
        reasoning: "hm",
        toolCalls: [made("call_0", "f"), made("call_1", "g"), made("call_2", "f"), made("own", "h")],
      },
      { role: "tool", content: "1", name: "f", toolCallId: "call_0" },
      { role: "tool", content: "2", name: "g", toolCallId: "call_1" },
      { role: "tool", content: "3", name: "f", toolCallId: "call_2" },
      { role: "tool", content: "4", name: "h", toolCallId: "own" },
      { role: "tool", content: "?" },
    ]);
  });

  it("translates options, format, think and tools; what configures a load is ignored and logged", async () => {
    const { send, inference, log } = setUp();
    const schema = { type: "object" };
    const { status, body } = await send("/api/chat", {
      ...ask,
      format: schema,
      think: "high",
      keep_alive: "5m",
      truncate: true,
      tools: [{ type: "function", function: { name: "f", description: "does f", parameters: schema } }],
      options: {
        temperature: 0.5,
        top_k: 10,
        top_p: 0.75,
        min_p: 0.25,
        seed: 7,
        num_predict: 12,
        stop: ["a", "b"],
        repeat_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: 1,
        num_ctx: 8192,
        num_gpu: 1,
        mirostat: 0,
      },
    });
    assert.equal(status, 200, body);
    const { sampling, prompt, ...rest } = inference.lastRun.request;
    const { temperature, topK, topP, minP, seed, repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
    assert.deepEqual(
      [temperature, topK, topP, minP, seed, repetitionPenalty, presencePenalty, frequencyPenalty],
      [0.5, 10, 0.75, 0.25, 7, 1.5, 0.5, 1],
    );
    assert.deepEqual(
      [rest.maxTokens, rest.stop, rest.grammar, rest.truncatePrompt],
      [12, ["a", "b"], { kind: "json_schema", schema, field: "format" }, true],
    );
    assert.deepEqual(rest.tools, {
      specs: [{ name: "f", description: "does f", parameters: schema, strict: false }],
      required: false,
      parallel: true,
    });
    const thinking = { enableThinking: true, reasoningEffort: "high" };
    assert.deepEqual(prompt.kind === "chat" && prompt.templateArguments, thinking);
    const told = log.lines.map(({ fields }) => fields.field);
    assert.deepEqual(told, ["options.num_ctx", "options.num_gpu", "options.mirostat", "keep_alive"]);
  });

  it("takes a negative seed and limit as none, and an empty format as none", async () => {
    const { send, inference } = setUp();
    await send("/api/chat", { ...ask, format: "", think: false, options: { seed: -1, num_predict: -1 } });
    const { sampling, maxTokens, grammar, prompt } = inference.lastRun.request;
    assert.deepEqual([sampling.seed, maxTokens, grammar], [null, null, null]);
    assert.deepEqual(prompt.kind === "chat" && prompt.templateArguments, { enableThinking: false });
    await send("/api/chat", { ...ask, format: "json" });
    assert.deepEqual(inference.lastRun.request.grammar, { kind: "json" });
  });

  it("loads or unloads the model if there are no messages, and only if necessary", async () => {
    const { send, models } = setUp();
    for (const [body, reason] of [
      [{ model: "tiny" }, "load"],
      [{ model: "other", messages: [], keep_alive: "5m" }, "load"],
      [{ model: "tiny", keep_alive: 0 }, "unload"],
      [{ model: "tiny", keep_alive: "0s" }, "unload"],
      [{ model: "other", keep_alive: 0 }, "unload"],
    ] as const) {
      const reply = await send("/api/chat", body);
      assert.equal(reply.headers["content-type"], "application/json");
      const message = { role: "assistant", content: "" };
      const expected = { model: body.model, message, done: true, done_reason: reason };
      assert.deepEqual(withoutTime(JSON.parse(reply.body)), expected);
    }
    assert.deepEqual(models.asked, ["reload other", "unload tiny", "unload tiny"]);
    models.becomes = { status: "unloaded", error: { code: "model_failed", message: "damaged" } };
    const { status, body } = await send("/api/chat", { model: "tiny" });
    assert.deepEqual([status, JSON.parse(body)], [503, { error: "damaged" }]);
  });

  it("sends a line without text while the stream is idle, as the format has no comments", async () => {
    const { send } = setUp(() => [[text("a")], { waitMs: 300 }, [finish(), done]], { keepAliveMs: 15 });
    const lines = linesOf((await send("/api/chat", ask)).body).slice(0, -1);
    assert.ok(lines.length > 2, `${lines.length} lines`);
    assert.ok(lines.every(({ message, model }) => model === "tiny" && typeof message.content === "string"));
    assert.equal(lines.map(({ message }) => message.content).join(""), "a");
  });

  it("cancels the generation when its client leaves", async () => {
    const { send, inference } = setUp(() => [[text("a")], { waitMs: 60_000 }]);
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 20);
    await send("/api/chat", ask, { signal: leaving.signal });
    assert.equal(inference.lastRun.state, "cancelled");
  });

  it("has errors in the protocol's shape: with their status, or as the last line of a stream that has begun", async () => {
    const begun = setUp(() => [[text("a")], [failure("model_failed", "it died")]]);
    assert.deepEqual(linesOf((await begun.send("/api/chat", ask)).body).slice(1), [{ error: "it died" }, ""]);
    const early = setUp(() => [[failure("queue_full", "too many")]]);
    const reply = await early.send("/api/chat", ask);
    assert.deepEqual([reply.status, JSON.parse(reply.body)], [429, { error: "too many" }]);
    assert.ok("retry-after" in reply.headers);
    const { send } = setUp();
    for (const [body, status, error] of [
      [{ ...ask, model: "nope" }, 404, /^model "nope" is not available/],
      [{ messages: [{ role: "robot", content: "" }] }, 400, /^messages\[0\]\.role: expected/],
      [{ messages: [{ ...messages[0], images: ["a b"] }] }, 400, /expected base64/],
      [{ messages: [{ role: "user", tool_calls: [{ function: { name: "f" } }] }] }, 400, /tool_calls: needs role/],
      [{ ...ask, format: "yaml" }, 400, /^format: expected "json" or a JSON schema/],
      [{ ...ask, top_logprobs: 2 }, 400, /^top_logprobs: needs logprobs/],
      [{ ...ask, options: { temperature: -1 } }, 400, /^options\.temperature: /],
    ] as const) {
      const refused = await send("/api/chat", body);
      const parsed = JSON.parse(refused.body);
      assert.equal(refused.status, status, refused.body);
      assert.match(parsed.error, error);
      assert.deepEqual(Object.keys(parsed), ["error"]);
    }
  });

  it("accepts bodies without a content type from programs, but not from web pages", async () => {
    const { app } = setUp();
    const body = JSON.stringify({ ...ask, stream: false });
    const curl = { "content-type": "application/x-www-form-urlencoded" };
    assert.equal((await request(app, "POST", "/api/chat", { body, headers: curl })).status, 200);
    assert.equal((await request(app, "POST", "/api/chat", { body })).status, 200);
    const page = { "content-type": "text/plain", origin: "https://example.com" };
    assert.equal((await request(app, "POST", "/api/chat", { body, headers: page })).status, 415);
    assert.equal((await request(app, "POST", "/v1/chat/completions", { body, headers: curl })).status, 415);
  });

  it("reads a long body on a text worker with the same result", async () => {
    const { send, inference } = setUp();
    const content = "x".repeat(70_000);
    const reply = await send("/api/chat", { ...ask, messages: [{ role: "user", content }], options: { seed: 3 } });
    assert.equal(reply.status, 200, reply.body);
    const { prompt, sampling } = inference.lastRun.request;
    assert.deepEqual([prompt.kind, sampling.seed], ["sealed", 3]);
  });
});

describe("POST /api/generate", () => {
  it("applies the chat template to the prompt and the system text, and streams the response", async () => {
    const { send, inference } = setUp(scripted(reasoning("hm"), text("Hello"), finish("length"), done));
    const { headers, body } = await send("/api/generate", { model: "tiny", prompt: "hi", system: "be brief" });
    assert.equal(headers["content-type"], "application/x-ndjson");
    assert.deepEqual(linesOf(body).slice(0, -1).map(withoutTime), [
      { model: "tiny", response: "", thinking: "hm", done: false },
      { model: "tiny", response: "Hello", done: false },
      { model: "tiny", response: "", done: true, done_reason: "length", ...metrics },
    ]);
    assert.deepEqual(inference.lastRun.request.prompt, {
      kind: "chat",
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: "hi" },
      ],
      templateArguments: {},
    });
    const whole = await send("/api/generate", { model: "tiny", prompt: "hi", stream: false });
    const { response, thinking } = JSON.parse(whole.body);
    assert.deepEqual([response, thinking], ["Hello", "hm"]);
  });

  it("continues a raw prompt as it is, and loads the model without a prompt", async () => {
    const { send, inference, models } = setUp();
    await send("/api/generate", { prompt: "Once", raw: true });
    assert.deepEqual(inference.lastRun.request.prompt, { kind: "text", text: "Once" });
    const { body } = await send("/api/generate", { model: "other", prompt: "" });
    assert.deepEqual(withoutTime(JSON.parse(body)), { model: "other", response: "", done: true, done_reason: "load" });
    assert.deepEqual(models.asked, ["reload other"]);
  });

  it("rejects unsupported fields with a specific error, but not if they are empty", async () => {
    const { send } = setUp();
    const neutral = { prompt: "hi", suffix: "", template: "", context: [], images: [], stream: false };
    assert.equal((await send("/api/generate", neutral)).status, 200);
    for (const [fields, error] of [
      [{ suffix: "x" }, /^suffix: filling in/],
      [{ template: "{{ .Prompt }}" }, /^template: .*raw: true/],
      [{ context: [1, 2] }, /^context: .*\/api\/chat/],
      [{ images: ["a b"] }, /expected base64/],
      [{ raw: true, system: "x" }, /^system: cannot be combined with raw/],
      [{ raw: true, think: true }, /^think: cannot be combined with raw/],
    ] as const) {
      const { status, body } = await send("/api/generate", { prompt: "hi", ...fields });
      assert.equal(status, 400, body);
      assert.match(JSON.parse(body).error, error);
    }
  });
});
