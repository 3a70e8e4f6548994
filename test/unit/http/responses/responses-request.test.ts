import assert from "node:assert/strict";
import { describe, it } from "node:test";
import OpenAI from "openai";
import type { ChatMessage, GenerateRequest } from "../../../../engines/generation.ts";
import { hello, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { errorOf, type Json, ResponsesRig } from "./responses-rig.ts";

const input = "hi";

async function asked(body: Json): Promise<GenerateRequest> {
  const rig = new ResponsesRig();
  await rig.create(body);
  return rig.inference.lastRun.request;
}

async function messages(body: Json): Promise<readonly ChatMessage[]> {
  const { prompt } = await asked(body);
  return prompt.kind === "chat" ? prompt.messages : [];
}

async function refusal(body: Json): Promise<readonly [number, string, string | null]> {
  return errorOf(await new ResponsesRig().send(body));
}

describe("a response request", () => {
  it("turns its items into a conversation, consecutive assistant items into one message", async () => {
    const items = [
      { role: "developer", content: "Speak." },
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "a" },
          { type: "input_text", text: "b" },
        ],
      },
      { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "short" }], encrypted_content: "…" },
      {
        type: "message",
        id: "m",
        status: "completed",
        role: "assistant",
        content: [{ type: "output_text", text: "c", annotations: [] }],
      },
      { type: "function_call", call_id: "1", name: "f", arguments: "{}", id: "fc_1", status: "completed" },
      { type: "function_call", call_id: "2", name: "g", arguments: "{}" },
      { type: "function_call_output", call_id: "1", output: "x" },
      { type: "function_call_output", call_id: "2", output: [{ type: "input_text", text: "y" }] },
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "hm" }] },
      {
        role: "assistant",
        content: [
          { type: "output_text", text: "no" },
          { type: "refusal", refusal: "not of the schema" },
        ],
      },
      { role: "assistant", content: "more" },
    ];
    assert.deepEqual(await messages({ input: items, instructions: "Be." }), [
      { role: "system", content: "Be.\n\nSpeak." },
      { role: "user", content: "a\nb" },
      {
        role: "assistant",
        content: "c",
        reasoning: "short",
        toolCalls: [
          { id: "1", name: "f", arguments: "{}" },
          { id: "2", name: "g", arguments: "{}" },
        ],
      },
      { role: "tool", content: "x", toolCallId: "1" },
      { role: "tool", content: "y", toolCallId: "2" },
      { role: "assistant", content: "no", reasoning: "hm" },
      { role: "assistant", content: "more" },
    ]);
  });

  it("takes a truncated call as text, or as a call if it has a result", async () => {
    const call = { type: "function_call", call_id: "1", name: "f", arguments: '{"a": 1', status: "incomplete" };
    const user = { role: "user", content: "q" };
    const assistant = (content: string) => ({ role: "assistant", content });
    assert.deepEqual(await messages({ input: [user, assistant("Well: "), call, assistant(" Sorry."), user] }), [
      user,
      assistant('Well: {"a": 1 Sorry.'),
      user,
    ]);
    const result = { type: "function_call_output", call_id: "1", output: "x" };
    assert.deepEqual(await messages({ input: [user, call, result] }), [
      user,
      { ...assistant(""), toolCalls: [{ id: "1", name: "f", arguments: '{"a": 1' }] },
      { role: "tool", content: "x", toolCallId: "1" },
    ]);
  });

  it("is translated to a generation request", async () => {
    const fields = {
      input,
      max_output_tokens: 7,
      temperature: 0,
      top_logprobs: 2,
      truncation: "auto",
      stop: "x",
      seed: 5,
      parallel_tool_calls: false,
      reasoning: { effort: "none" },
      tools: [
        { type: "function", name: "f", parameters: { type: "object" }, strict: true },
        { type: "function", name: "g", description: "G" },
      ],
      tool_choice: { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "f" }] },
    };
    const { maxTokens, sampling, truncatePrompt, stop, tools, prompt, series } = await asked(fields);
    assert.deepEqual([maxTokens, sampling.temperature, sampling.topLogprobs, sampling.seed], [7, 0, 2, 5]);
    assert.deepEqual([truncatePrompt, stop, series], [true, ["x"], null]);
    assert.deepEqual(tools, {
      specs: [{ name: "f", description: null, parameters: { type: "object" }, strict: true }],
      required: true,
      parallel: false,
    });
    assert.deepEqual(prompt.kind === "chat" && prompt.templateArguments, {
      enableThinking: false,
      reasoningEffort: "off",
    });
    const streaming = new ResponsesRig();
    await streaming.stream({ input });
    assert.equal(streaming.inference.lastRun.request.series, "/v1/responses");
  });

  it("accepts the text format under either name, and reports the sent name", async () => {
    const schema = { type: "object" };
    const expected = (field: string) => ({ kind: "json_schema", schema, field });
    const flat = { text: { format: { type: "json_schema", name: "n", schema, strict: true } } };
    const nested = { response_format: { type: "json_schema", json_schema: { name: "n", schema } } };
    assert.deepEqual((await asked({ input, ...flat })).grammar, expected("text.format"));
    assert.deepEqual((await asked({ input, ...nested })).grammar, expected("response_format"));
    assert.deepEqual((await asked({ input, text: { format: { type: "json_object" } } })).grammar, { kind: "json" });
    assert.equal((await asked({ input, text: { verbosity: "low" } })).grammar, null);
    assert.deepEqual(await refusal({ input, ...flat, ...nested }), [400, "invalid_value", "response_format"]);
  });

  const refused: readonly (readonly [Json, code: string, param: string])[] = [
    [{}, "invalid_value", "input"],
    [{ input: [] }, "invalid_value", "input"],
    [{ input, n: 2 }, "invalid_value", "n"],
    [{ input, inputs: 1 }, "invalid_value", "inputs"],
    [{ input, max_tool_calls: 0 }, "invalid_value", "max_tool_calls"],
    [{ input, conversation: "conv_1" }, "unsupported", "conversation"],
    [{ input, prompt: { id: "p" } }, "unsupported", "prompt"],
    [{ input, files: [{ name: "a.csv" }] }, "invalid_value", "files"],
    [{ input, max_tokens: 1, max_output_tokens: 2 }, "invalid_value", "max_tokens"],
    [{ input, max_tokens: 1, max_completion_tokens: 2 }, "invalid_value", "max_tokens"],
    [{ input, max_completion_tokens: 1, max_output_tokens: 2 }, "invalid_value", "max_completion_tokens"],
    [
      { input, ignore_eos: true, tool_choice: "required", tools: [{ type: "function", name: "f" }] },
      "invalid_value",
      "ignore_eos",
    ],
    [{ input, metadata: { a: 1 } }, "invalid_value", "metadata.a"],
    [
      { input, metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, ""])) },
      "invalid_value",
      "metadata",
    ],
    [{ input, include: ["everything"] }, "invalid_value", "include[0]"],
    [{ input, tools: [{ type: "function", name: "f" }, { type: "web_search" }] }, "unsupported", "tools"],
    [{ input, tools: [{ type: "custom", name: "apply_patch" }] }, "unsupported", "tools[0]"],
    [{ input, tools: [{ type: "local_shell" }] }, "unsupported", "tools[0]"],
    [{ input, tools: [{ type: "nonsense" }] }, "invalid_value", "tools[0].type"],
    [{ input, tools: [{ type: "function" }] }, "invalid_value", "tools[0]"],
    [{ input, tool_choice: { type: "function", name: "f" } }, "invalid_value", "tool_choice"],
    [{ input, tool_choice: { type: "mcp" } }, "invalid_value", "tool_choice.server_label"],
    [{ input, tool_choice: { type: "web_search" } }, "invalid_value", "tool_choice"],
    [{ input, tool_choice: { type: "file_search" } }, "unsupported", "tool_choice"],
    [{ input: [{ type: "function_call_output", call_id: "1", output: "x" }] }, "invalid_value", "input"],
    [{ input: [{ type: "custom_tool_call", call_id: "1" }] }, "unsupported", "input[0]"],
    [
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] },
      "invalid_value",
      "input[0].content[0].image_url",
    ],
    [{ input: [{ role: "tool", content: "x" }] }, "invalid_value", "input[0].role"],
    [{ input: [{ type: "odd" }] }, "invalid_value", "input[0].type"],
    [
      { input, grammar: { type: "regex", value: "a" }, tools: [{ type: "function", name: "f" }] },
      "invalid_value",
      "grammar",
    ],
    [{ input, background: true, store: false }, "invalid_value", "background"],
  ];
  for (const [body, code, param] of refused) {
    it(`is refused, naming ${param}: ${JSON.stringify(body).slice(0, 80)}`, async () => {
      assert.deepEqual(await refusal(body), [400, code, param]);
    });
  }

  it("accepts ignored fields and logs them", async () => {
    const rig = new ResponsesRig();
    const neutral = {
      conversation: null,
      service_tier: "auto",
      prompt_cache_key: "k",
      files: [],
    };
    await rig.create({
      input,
      ...neutral,
      stream_options: { include_obfuscation: false },
      include: ["reasoning.encrypted_content"],
    });
    assert.ok(
      rig.log.lines.some(({ message, fields }) => `${message}${JSON.stringify(fields)}`.includes("prompt_cache_key")),
    );
  });
});

describe("the vendor's client", () => {
  function clientOf(rig: ResponsesRig): OpenAI {
    return new OpenAI({
      apiKey: "any",
      baseURL: "http://localhost/v1",
      maxRetries: 0,
      fetch: async (url, init) => {
        const { pathname, search } = new URL(String(url));
        const body = typeof init?.body === "string" ? { body: init.body } : {};
        const headers = { "content-type": "application/json" };
        const reply = await request(rig.app, init?.method?.toUpperCase() ?? "GET", pathname, {
          ...body,
          headers,
          query: search.slice(1),
        });
        return new Response(reply.body, { status: reply.status, headers: reply.headers });
      },
    });
  }

  it("creates, streams, retrieves, lists, cancels and deletes responses", async () => {
    const rig = new ResponsesRig(hello);
    const { responses } = clientOf(rig);
    const made = await responses.create({ input: "hi", model: "default" });
    assert.equal(made.output_text, "Hello world");
    const stream = responses.stream({ input: "hi", model: "default", previous_response_id: made.id });
    assert.equal((await stream.finalResponse()).output_text, "Hello world");
    assert.equal((await responses.retrieve(made.id)).output_text, "Hello world");
    const listed = [];
    for await (const item of responses.inputItems.list(made.id, { limit: 1 })) listed.push(item.type);
    assert.deepEqual(listed, ["message"]);
    const background = await responses.create({ input: "hi", model: "default", background: true, stream: true });
    const types = [];
    for await (const event of background) types.push(event.type);
    assert.equal(types.at(-1), "response.completed");
    const again = responses.stream({ response_id: rig.lastId, starting_after: 2 });
    assert.equal((await again.finalResponse()).output_text, "Hello world");
    await responses.delete(made.id);
    await assert.rejects(responses.retrieve(made.id), { status: 404 });
    await assert.rejects(responses.cancel(rig.lastId), { status: 404 });
  });

  it("reads calls from a stream, and receives errors", async () => {
    const rig = new ResponsesRig(() => [
      [...toolCall("f", ['{"a":', "1}"])],
      [{ type: "error", error: { code: "model_failed", message: "it broke" } }],
    ]);
    const { responses } = clientOf(rig);
    const stream = await responses.create({
      input: "hi",
      model: "default",
      stream: true,
      tools: [{ type: "function", name: "f", parameters: {}, strict: null }],
    });
    let args = "";
    await assert.rejects(async () => {
      for await (const event of stream)
        if (event.type === "response.function_call_arguments.done") args = event.arguments;
    }, /it broke/);
    assert.equal(args, '{"a":1}');
  });
});
