// The official OpenAI client: chat completions and responses, against the real command with the real default model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import OpenAI from "openai";
import { checkResponseStream } from "../../fixtures/responses-checker.ts";
import {
  answerSchema,
  assertCall,
  assertStructured,
  assertWeather,
  becomesIdle,
  image,
  matrixServer,
  maxTokens,
  question,
  time,
  toolQuestion,
  weather,
} from "./matrix.ts";

const server = matrixServer();
const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
const ask = (content: string) => [{ role: "user" as const, content }];
const tools = [weather, time].map((tool) => ({ type: "function" as const, function: tool }));

describe("the openai client's chat completions", () => {
  const base = { model: "default", temperature: 0, max_tokens: maxTokens };
  const create = (changes: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming>) =>
    client().chat.completions.create({ ...base, messages: ask(question), ...changes });

  it("answers", async () => {
    const { choices, usage } = await create({ max_tokens: 24 });
    assert.ok((choices[0]?.message.content ?? "").length > 10);
    assert.equal(usage?.total_tokens, (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0));
  });

  it("streams the same answer", async () => {
    const whole = await create({ max_tokens: 24 });
    const stream = client().chat.completions.stream({ ...base, max_tokens: 24, messages: ask(question) });
    assert.equal(await stream.finalContent(), whole.choices[0]?.message.content);
    assert.equal((await stream.totalUsage()).completion_tokens, whole.usage?.completion_tokens);
  });

  for (const [name, tool_choice] of [
    ["a required call", "required"],
    ["a named call", { type: "function", function: { name: "get_weather" } }],
    [
      "a call of the allowed tools",
      {
        type: "allowed_tools",
        allowed_tools: { mode: "required", tools: [{ type: "function", function: { name: "get_weather" } }] },
      },
    ],
  ] as const) {
    it(`makes ${name} with arguments that match the schema`, async () => {
      const { choices } = await create({
        messages: ask(toolQuestion),
        tools,
        tool_choice: tool_choice as OpenAI.ChatCompletionToolChoiceOption,
        parallel_tool_calls: false,
      });
      const [choice] = choices;
      assert.equal(choice?.finish_reason, "tool_calls");
      const call = choice.message.tool_calls?.[0];
      assert.ok(call?.type === "function");
      assertCall(call.function.name, JSON.parse(call.function.arguments));
      if (name !== "a required call") assert.equal(call.function.name, "get_weather");
    });
  }

  it("streams a call piece by piece", async () => {
    const pieces: string[] = [];
    const stream = client()
      .chat.completions.stream({
        ...base,
        messages: ask(toolQuestion),
        tools,
        tool_choice: "required",
        parallel_tool_calls: false,
      })
      .on("tool_calls.function.arguments.delta", ({ arguments_delta }) => pieces.push(arguments_delta));
    const [choice] = (await stream.finalChatCompletion()).choices;
    assert.equal(choice?.finish_reason, "tool_calls");
    const call = choice.message.tool_calls?.[0];
    assert.ok(call?.type === "function");
    assertCall(call.function.name, JSON.parse(call.function.arguments));
    assert.ok(pieces.length > 3, `the arguments came in ${pieces.length} pieces`);
  });

  it("makes parallel calls, and only one if they are disabled", async () => {
    const params = { messages: ask(toolQuestion), tools, tool_choice: "required" } as const;
    const [choice] = (await create(params)).choices;
    const several = choice?.message.tool_calls ?? [];
    assert.ok(several.length > 1, `${several.length} calls`);
    assert.equal(new Set(several.map(({ id }) => id)).size, several.length);
    // If the token limit ended the output, the last call is incomplete.
    for (const call of choice?.finish_reason === "length" ? several.slice(0, -1) : several) {
      assert.ok(call.type === "function");
      assertCall(call.function.name, JSON.parse(call.function.arguments));
    }
    const one = await create({ ...params, parallel_tool_calls: false });
    assert.equal(one.choices[0]?.message.tool_calls?.length, 1);
  });

  it("streams parallel calls, each under its index", async () => {
    const stream = client().chat.completions.stream({
      ...base,
      messages: ask(toolQuestion),
      tools,
      tool_choice: "required",
    });
    const calls = new Map<number, string>();
    for await (const chunk of stream) {
      for (const { index, function: called } of chunk.choices[0]?.delta.tool_calls ?? []) {
        calls.set(index, (calls.get(index) ?? "") + (called?.arguments ?? ""));
      }
    }
    assert.ok(calls.size > 1, `${calls.size} calls`);
    assert.deepEqual(
      [...calls.keys()],
      Array.from(calls.keys(), (_, i) => i),
    );
    // The last call may be cut off at max_tokens.
    for (const args of [...calls.values()].slice(0, -1)) assert.ok(JSON.parse(args).city);
  });

  it("accepts the results of parallel calls", async () => {
    const call = (id: string, city: string) => ({
      id,
      type: "function" as const,
      function: { name: "get_weather", arguments: JSON.stringify({ city, unit: "celsius" }) },
    });
    const { choices } = await create({
      max_tokens: 16,
      tools,
      messages: [
        ...ask(toolQuestion),
        { role: "assistant", content: null, tool_calls: [call("a", "Rome"), call("b", "Paris")] },
        { role: "tool", tool_call_id: "a", content: "sunny" },
        { role: "tool", tool_call_id: "b", content: "rain" },
      ],
    });
    assert.ok(choices[0]);
  });

  it("gives structured output", async () => {
    const { choices } = await client().chat.completions.parse({
      ...base,
      messages: ask(question),
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: answerSchema, strict: true } },
    });
    assertStructured(JSON.parse(choices[0]?.message.content ?? ""));
  });

  it("rejects an image with a specific error", async () => {
    const url = `data:image/png;base64,${image}`;
    const content = [
      { type: "text" as const, text: "what?" },
      { type: "image_url" as const, image_url: { url } },
    ];
    await assert.rejects(create({ messages: [{ role: "user", content }] }), (error: unknown) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.match(`${error.param}`, /^messages\[0\]\.content\[1\]/);
      return true;
    });
  });

  it("stops the engine when a stream is aborted", async () => {
    const stream = await client().chat.completions.create({
      ...base,
      max_tokens: 800,
      ignore_eos: true,
      messages: ask(question),
      stream: true,
    } as OpenAI.ChatCompletionCreateParamsStreaming);
    for await (const _ of stream) break;
    await becomesIdle(server);
  });

  it("throws its own class for each error", async () => {
    await assert.rejects(create({ model: "no-such-model" }), OpenAI.NotFoundError);
    await assert.rejects(create({ temperature: 9 }), OpenAI.BadRequestError);
    await assert.rejects(create({ messages: [] }), OpenAI.BadRequestError);
    await assert.rejects(create({ messages: ask("word ".repeat(2000)) }), (error: unknown) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.code, "context_length_exceeded");
      return true;
    });
  });

  it("embeds texts with the generation model", async () => {
    const { data } = await client().embeddings.create({ model: "default", input: ["the sea", "a ship"] });
    assert.equal(data.length, 2);
    assert.ok((data[0]?.embedding.length ?? 0) > 100);
  });
});

describe("the openai client's responses", () => {
  const base = { model: "default", temperature: 0, max_output_tokens: maxTokens };
  const responseTools = [weather, time].map((tool) => ({ type: "function" as const, strict: true, ...tool }));
  const create = (changes: Partial<OpenAI.Responses.ResponseCreateParamsNonStreaming>) =>
    client().responses.create({ ...base, input: question, ...changes });

  async function streamed(changes: Partial<OpenAI.Responses.ResponseCreateParamsStreaming>) {
    const stream = await client().responses.create({ ...base, input: question, ...changes, stream: true });
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) events.push(event);
    checkResponseStream(events as unknown as Readonly<Record<string, unknown>>[]);
    return events;
  }

  it("answers, and ends as incomplete at the token limit", async () => {
    const whole = await create({});
    assert.equal(whole.status, "completed");
    assert.ok(whole.output_text.length > 10);
    const cut = await create({ max_output_tokens: 4 });
    assert.equal(cut.status, "incomplete");
    assert.equal(cut.incomplete_details?.reason, "max_output_tokens");
  });

  it("streams the same answer, as strict readers want it", async () => {
    const whole = await create({});
    const events = await streamed({});
    const text = events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
    assert.equal(text, whole.output_text);
    assert.equal(events.at(-1)?.type, "response.completed");
    const cut = await streamed({ max_output_tokens: 4 });
    assert.equal(cut.at(-1)?.type, "response.incomplete");
  });

  it("calls a tool, streamed and not, and accepts its result", async () => {
    const choice = { tool_choice: "required" as const, parallel_tool_calls: false };
    const changes = { input: toolQuestion, tools: responseTools, ...choice };
    const whole = await create(changes);
    const call = whole.output.find((item) => item.type === "function_call");
    assert.ok(call?.type === "function_call");
    assertCall(call.name, JSON.parse(call.arguments));
    const events = await streamed(changes);
    assert.ok(events.filter(({ type }) => type === "response.function_call_arguments.delta").length > 3);
    const next = await create({
      previous_response_id: whole.id,
      max_output_tokens: 16,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
    });
    assert.ok(next.usage && whole.usage && next.usage.input_tokens > whole.usage.output_tokens);
  });

  it("gives structured output", async () => {
    const response = await create({
      text: { format: { type: "json_schema", name: "answer", schema: answerSchema, strict: true } },
    });
    assertStructured(JSON.parse(response.output_text));
  });

  it("stores responses: retrieve, continue, delete", async () => {
    const { id } = await create({ max_output_tokens: 16 });
    assert.equal((await client().responses.retrieve(id)).id, id);
    const next = await create({ previous_response_id: id, input: "And the sky?", max_output_tokens: 16 });
    assert.equal(next.previous_response_id, id);
    await client().responses.delete(id);
    await assert.rejects(client().responses.retrieve(id), OpenAI.NotFoundError);
  });

  it("runs in the background, is reconnected to, and is cancelled", async () => {
    const long = { max_output_tokens: 800, ignore_eos: true, background: true } as object;
    const started = await client().responses.create({ ...base, input: question, stream: true, ...long });
    let id = "";
    let last = 0;
    for await (const event of started) {
      if (event.type === "response.created") id = event.response.id;
      last = event.sequence_number;
      if (last > 8) break;
    }
    const resumed = await client().responses.retrieve(id, { stream: true, starting_after: last });
    let next = 0;
    for await (const event of resumed) {
      next = event.sequence_number;
      break;
    }
    assert.equal(next, last + 1);
    assert.equal((await client().responses.cancel(id)).status, "cancelled");
    await becomesIdle(server);
    assert.equal((await client().responses.retrieve(id)).status, "cancelled");
  });

  it("stops the engine when a stream is aborted", async () => {
    const long = { max_output_tokens: 800, ignore_eos: true } as object;
    const stream = await client().responses.create({ ...base, input: question, stream: true, ...long });
    for await (const event of stream) if (event.type === "response.output_text.delta") break;
    await becomesIdle(server);
  });

  it("rejects an image with a specific error, and throws its own class for each error", async () => {
    const content = [
      { type: "input_image" as const, image_url: `data:image/png;base64,${image}`, detail: "auto" as const },
    ];
    await assert.rejects(create({ input: [{ role: "user", content }] }), OpenAI.BadRequestError);
    await assert.rejects(create({ model: "no-such-model" }), OpenAI.NotFoundError);
    await assert.rejects(create({ previous_response_id: "resp_none" }), OpenAI.NotFoundError);
    await assert.rejects(create({ temperature: 9 }), OpenAI.BadRequestError);
  });

  it("names a call's arguments only by its schema", async () => {
    const { output } = await create({
      input: toolQuestion,
      tools: responseTools,
      tool_choice: { type: "function", name: "get_weather" },
    });
    const call = output.find((item) => item.type === "function_call");
    assert.ok(call?.type === "function_call");
    assertWeather(JSON.parse(call.arguments));
  });
});
