// The official Anthropic client, against the real command with the real default model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import {
  answerSchema,
  assertCall,
  assertStructured,
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
const client = () => new Anthropic({ baseURL: server.url, apiKey: "any", maxRetries: 0 });
const ask = (content: string): Anthropic.MessageParam[] => [{ role: "user", content }];
const tools = [weather, time].map(
  ({ name, description, parameters }) => ({ name, description, input_schema: parameters }) as unknown as Anthropic.Tool,
);
const base = { model: "default", temperature: 0, max_tokens: maxTokens };

describe("the anthropic client", () => {
  const create = (changes: Partial<Anthropic.MessageCreateParamsNonStreaming>) =>
    client().messages.create({ ...base, messages: ask(question), ...changes });
  const textOf = ({ content }: Anthropic.Message) =>
    content.map((block) => (block.type === "text" ? block.text : "")).join("");

  it("answers, and says what stopped it", async () => {
    const message = await create({});
    assert.ok(textOf(message).length > 10);
    assert.equal(message.stop_reason, "end_turn");
    const cut = await create({ max_tokens: 3 });
    assert.equal(cut.stop_reason, "max_tokens");
    assert.equal(cut.usage.output_tokens, 3);
    const stopped = await create({ stop_sequences: ["e"] });
    assert.equal(stopped.stop_reason, "stop_sequence");
    assert.equal(stopped.stop_sequence, "e");
  });

  it("streams the same answer, with usage in both events", async () => {
    const whole = await create({});
    const stream = client().messages.stream({ ...base, messages: ask(question) });
    const streamed = await stream.finalMessage();
    assert.equal(textOf(streamed), textOf(whole));
    assert.equal(streamed.stop_reason, "end_turn");
    const total = ({ usage }: Anthropic.Message) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0);
    assert.equal(total(streamed), total(whole));
    assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
  });

  it("counts the tokens of a prompt", async () => {
    const { input_tokens } = await client().messages.countTokens({ model: "default", messages: ask(question) });
    const { usage } = await create({ max_tokens: 1 });
    assert.equal(input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
  });

  it("calls a tool, streamed and not, and accepts its result", async () => {
    const changes = {
      messages: ask(toolQuestion),
      tools,
      tool_choice: { type: "any" as const, disable_parallel_tool_use: true },
    };
    const whole = await create(changes);
    assert.equal(whole.stop_reason, "tool_use");
    const call = whole.content.find((block) => block.type === "tool_use");
    assert.ok(call?.type === "tool_use");
    assertCall(call.name, call.input);
    const pieces: string[] = [];
    const stream = client()
      .messages.stream({ ...base, ...changes })
      .on("inputJson", (piece) => pieces.push(piece));
    const block = (await stream.finalMessage()).content.find(({ type }) => type === "tool_use");
    assert.ok(block?.type === "tool_use");
    assertCall(block.name, block.input);
    assert.ok(pieces.length > 3, `the input came in ${pieces.length} pieces`);
    const results: Anthropic.MessageParam = {
      role: "user",
      content: [{ type: "tool_result", tool_use_id: call.id, content: "no such city", is_error: true }],
    };
    const next = await create({
      max_tokens: 16,
      tools,
      messages: [...ask(toolQuestion), { role: "assistant", content: [call] }, results],
    });
    assert.ok(next.usage.output_tokens > 0);
  });

  it("calls the named tool, and only one if parallel calls are disabled", async () => {
    const { content } = await create({
      messages: ask(toolQuestion),
      tools,
      tool_choice: { type: "tool", name: "get_time", disable_parallel_tool_use: true },
    });
    const calls = content.filter((block) => block.type === "tool_use");
    assert.deepEqual(
      calls.map((block) => block.type === "tool_use" && block.name),
      ["get_time"],
    );
  });

  it("makes parallel calls", async () => {
    const { content, stop_reason } = await create({ messages: ask(toolQuestion), tools, tool_choice: { type: "any" } });
    const calls = content.filter((block) => block.type === "tool_use");
    assert.ok(calls.length > 1, `${calls.length} calls`);
    // If the token limit ended the output, the last call is incomplete.
    const whole = stop_reason === "max_tokens" ? calls.slice(0, -1) : calls;
    for (const call of whole) if (call.type === "tool_use") assertCall(call.name, call.input);
  });

  it("accepts parallel calls and their results", async () => {
    const use = (id: string, city: string) => ({
      type: "tool_use" as const,
      id,
      name: "get_weather",
      input: { city, unit: "celsius" },
    });
    const result = (id: string, content: string) => ({ type: "tool_result" as const, tool_use_id: id, content });
    const message = await create({
      max_tokens: 16,
      tools,
      messages: [
        ...ask(toolQuestion),
        { role: "assistant", content: [{ type: "text", text: "I look." }, use("a", "Rome"), use("b", "Paris")] },
        { role: "user", content: [result("a", "sunny"), result("b", "rain")] },
      ],
    });
    assert.ok(message.usage.output_tokens > 0);
  });

  it("gives structured output", async () => {
    const message = await create({
      output_config: { format: { type: "json_schema", schema: answerSchema as unknown as Record<string, unknown> } },
    });
    assertStructured(JSON.parse(textOf(message)));
  });

  it("rejects an image with a specific error", async () => {
    const content = [
      { type: "image" as const, source: { type: "base64" as const, media_type: "image/png" as const, data: image } },
    ];
    await assert.rejects(create({ messages: [{ role: "user", content }] }), (error: unknown) => {
      assert.ok(error instanceof Anthropic.BadRequestError);
      assert.match(error.message, /messages\[0\]\.content\[0\]/);
      return true;
    });
  });

  it("stops the engine when a stream is aborted", async () => {
    const stream = client().messages.stream({
      ...base,
      max_tokens: 800,
      messages: ask("Count from one to a thousand, in words."),
      ...({ ignore_eos: true } as object),
    });
    for await (const event of stream) if (event.type === "content_block_delta") break;
    stream.abort();
    await becomesIdle(server);
  });

  it("throws its own class for each error", async () => {
    await assert.rejects(create({ model: "no-such-model" }), Anthropic.NotFoundError);
    await assert.rejects(create({ temperature: 9 } as object), Anthropic.BadRequestError);
    await assert.rejects(create({ messages: ask("word ".repeat(2000)) }), Anthropic.BadRequestError);
  });
});
