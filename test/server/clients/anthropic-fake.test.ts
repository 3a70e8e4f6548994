// The official Anthropic client with a fake inference, on every HTTP server implementation that loads here.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import { done, failure, finish, hello, reasoning, text, toolCall } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges, startServer } from "../../fixtures/http-server.ts";

const model = "tiny";
const max_tokens = 64;
const messages = [{ role: "user" as const, content: "hi" }];
const tools = [{ name: "look", description: "looks", input_schema: { type: "object" as const } }];
const begin = { type: "begin", promptTokens: 8, cachedTokens: 5 } as const;

const withCalls = () => [
  [begin, reasoning("Hm")],
  [text("I look. ")],
  toolCall("look", ['{"at":', '["a",1]}']),
  toolCall("look", ["{}"], 1),
  [finish("tool_calls"), done],
];
const blocks = [
  { type: "thinking", thinking: "Hm", signature: "" },
  { type: "text", text: "I look. " },
  { type: "tool_use", id: "call_0", name: "look", input: { at: ["a", 1] }, caller: { type: "direct" } },
  { type: "tool_use", id: "call_1", name: "look", input: {}, caller: { type: "direct" } },
];

for (const edge of loadableEdges()) {
  describe(`the anthropic client on the ${edge} edge`, async () => {
    const server = await startServer(edge);
    after(() => server.stop());
    const client = new Anthropic({ baseURL: server.url, apiKey: "any", maxRetries: 0 });
    const create = (extra: object = {}) => client.messages.create({ model, max_tokens, messages, ...extra });

    it("creates a message", async () => {
      const message = await client.messages.create({ model: "default", max_tokens, messages, system: "be brief" });
      assert.deepEqual(message.content, [{ type: "text", text: "Hello world" }]);
      assert.equal(message.stop_reason, "end_turn");
      assert.match(message._request_id ?? "", /^[0-9a-f-]{36}$/);
      assert.deepEqual(
        [message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens],
        [3, 5, 4],
      );
    });

    it("streams raw events", async () => {
      const types: string[] = [];
      for await (const event of await client.messages.create({ model, max_tokens, messages, stream: true })) {
        types.push(event.type);
      }
      assert.deepEqual(types, [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
      ]);
    });

    it("assembles thinking, text and two calls the same from a stream and from a whole body", async () => {
      server.inference.script = withCalls;
      const stream = client.messages.stream({ model, max_tokens, messages, tools });
      const thoughts: string[] = [];
      stream.on("thinking", (delta) => thoughts.push(delta));
      const streamed = await stream.finalMessage();
      const whole = await client.messages.create({ model, max_tokens, messages, tools });
      assert.deepEqual(JSON.parse(JSON.stringify(streamed.content)), blocks);
      assert.deepEqual(whole.content, blocks);
      assert.deepEqual(thoughts, ["Hm"]);
      assert.deepEqual(streamed.usage, whole.usage);
      assert.deepEqual([streamed.stop_reason, whole.stop_reason], ["tool_use", "tool_use"]);
      server.inference.script = hello;
    });

    it("sends an answer back with the results of its calls", async () => {
      server.inference.script = withCalls;
      const { content } = await client.messages.create({ model, max_tokens, messages, tools });
      server.inference.script = hello;
      const results = ["call_0", "call_1"].map((id, i) => {
        return { type: "tool_result" as const, tool_use_id: id, content: "seen", is_error: i === 1 };
      });
      await client.messages.create({
        model,
        max_tokens,
        tools,
        messages: [...messages, { role: "assistant", content }, { role: "user", content: results }],
      });
      const { prompt } = server.inference.lastRun.request;
      assert.ok(prompt.kind === "chat");
      assert.deepEqual(
        prompt.messages.map(({ role, content: shown }) => [role, shown]),
        [
          ["user", "hi"],
          ["assistant", "I look. "],
          ["tool", "seen"],
          ["tool", "The tool failed: seen"],
        ],
      );
    });

    it("counts tokens", async () => {
      const count = await client.messages.countTokens({ model, messages, tools, system: "be brief" });
      assert.deepEqual(count, { input_tokens: 8 });
    });

    it("works with the beta variant of the same routes", async () => {
      const message = await client.beta.messages.create({
        model,
        max_tokens,
        messages,
        betas: ["interleaved-thinking-2025-05-14"],
      });
      assert.equal(message.content[0]?.type, "text");
    });

    it("runs tools, although the server refuses the runner's threads", async () => {
      server.inference.script = ({ prompt }) => {
        const isAnswered = prompt.kind === "chat" && prompt.messages.some(({ role }) => role === "tool");
        return isAnswered
          ? hello({ choices: 1 } as never)
          : [toolCall("look", ['{"at": "x"}']), [finish("tool_calls"), done]];
      };
      const inputs: unknown[] = [];
      const run = (input: unknown) => {
        inputs.push(input);
        return "seen";
      };
      const runner = client.beta.messages.toolRunner({
        model,
        max_tokens,
        messages,
        tools: [{ ...tools[0]!, type: "custom", run, parse: (input: unknown) => input }],
      });
      const last = await runner.runUntilDone();
      assert.deepEqual(inputs, [{ at: "x" }]);
      assert.deepEqual(last.content, [{ type: "text", text: "Hello world" }]);
      server.inference.script = hello;
    });

    it("says that threads are unsupported in the words that clients look for", async () => {
      await assert.rejects(create({ thread: { type: "create" } }), (error) => {
        assert.ok(error instanceof Anthropic.ThreadUnsupportedRequestError);
        assert.deepEqual(error.details.unsupported, ["thread"]);
        return true;
      });
    });

    it("lists the models page by page, and shows one", async () => {
      const ids: string[] = [];
      for await (const { id, type } of client.models.list({ limit: 1 })) ids.push(`${type} ${id}`);
      assert.deepEqual(ids, ["model default", "model tiny", "model other"]);
      const { id, display_name, created_at } = await client.models.retrieve("tiny");
      assert.deepEqual([id, display_name, new Date(created_at).toISOString()], ["tiny", "tiny", created_at]);
      await assert.rejects(client.models.retrieve("claude"), (error) => {
        assert.ok(error instanceof Anthropic.NotFoundError);
        assert.deepEqual([error.type, error.errorCode], ["not_found_error", "model_not_found"]);
        return true;
      });
    });

    it("gets its own kind of error for an unknown path", async () => {
      await assert.rejects(client.get("/v1/organizations/me"), (error) => {
        assert.ok(error instanceof Anthropic.NotFoundError);
        assert.equal(error.type, "not_found_error");
        return true;
      });
    });

    it("cancels the generation when its stream is aborted", async () => {
      server.inference.script = () => [[begin, text("a")], { waitMs: 60_000 }];
      const stream = client.messages.stream({ model, max_tokens, messages });
      stream.on("text", () => stream.abort());
      await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
      for (let tries = 0; server.inference.lastRun.state !== "cancelled"; tries++) {
        assert.ok(tries < 200, "not cancelled within a second");
        await sleep(5);
      }
      server.inference.script = hello;
    });

    it("throws what the stream reports after it has begun", async () => {
      server.inference.script = () => [[begin, text("a")], [failure("model_failed", "the engine died")]];
      await assert.rejects(client.messages.stream({ model, max_tokens, messages }).finalMessage(), (error) => {
        assert.ok(error instanceof Anthropic.APIError);
        assert.deepEqual([error.type, error.apiMessage], ["overloaded_error", "the engine died"]);
        return true;
      });
      server.inference.script = hello;
    });

    it("throws its own class for each status", async () => {
      await assert.rejects(create({ model: "claude" }), Anthropic.NotFoundError);
      await assert.rejects(create({ temperature: 3 }), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.deepEqual(
          [error.type, error.errorCode, error.apiMessage],
          ["invalid_request_error", "invalid_value", "temperature: expected a number of at most 2, got 3"],
        );
        return true;
      });
      for (const [code, kind] of [
        ["context_length_exceeded", Anthropic.BadRequestError],
        ["queue_full", Anthropic.RateLimitError],
        ["model_failed", Anthropic.InternalServerError],
        ["model_loading", Anthropic.InternalServerError],
      ] as const) {
        server.inference.script = () => [[failure(code)]];
        await assert.rejects(create(), kind);
        await assert.rejects(create({ stream: true }), kind);
      }
      server.inference.script = hello;
    });

    it("tries again by itself after Retry-After", async () => {
      let calls = 0;
      server.inference.script = (request) => (calls++ === 0 ? [[failure("queue_full")]] : hello(request));
      const patient = new Anthropic({ baseURL: server.url, apiKey: "any", maxRetries: 1 });
      const startedAt = performance.now();
      const message = await patient.messages.create({ model, max_tokens, messages });
      assert.equal(message.content.length, 1);
      assert.ok(performance.now() - startedAt > 900);
      server.inference.script = hello;
    });
  });
}
