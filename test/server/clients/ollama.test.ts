// The ollama client, against the real command with the real default model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type ChatResponse, Ollama, type ToolCall } from "ollama";
import {
  answerSchema,
  assertCall,
  assertStructured,
  becomesIdle,
  image,
  matrixServer,
  question,
  toolQuestion,
  weather,
} from "./matrix.ts";

const server = matrixServer();
const client = () => new Ollama({ host: server.url });
const messages = [{ role: "user", content: question }];
const model = "default";
const options = { temperature: 0, num_predict: 24, num_ctx: 1024 };
const long = { ...options, num_predict: 96 };
const tools = [
  { type: "function", function: { ...weather, parameters: JSON.parse(JSON.stringify(weather.parameters)) } },
];

describe("the ollama client", () => {
  it("chats, with the figures of the generation", async () => {
    const { message, done_reason, ...rest } = await client().chat({ model, messages, options });
    assert.equal(message.role, "assistant");
    assert.ok(message.content.length > 10);
    assert.equal(done_reason, "length");
    assert.equal(rest.eval_count, 24);
    assert.ok(rest.prompt_eval_count > 5);
    assert.ok(rest.eval_duration > 1e6 && rest.total_duration > rest.eval_duration);
  });

  it("streams the same answer", async () => {
    const whole = await client().chat({ model, messages, options });
    const lines: ChatResponse[] = [];
    for await (const line of await client().chat({ model, messages, options, stream: true })) lines.push(line);
    assert.ok(lines.length > 5);
    assert.equal(lines.map(({ message }) => message.content).join(""), whole.message.content);
    assert.deepEqual([lines.at(-1)?.done, lines.at(-1)?.eval_count], [true, 24]);
  });

  it("generates from a prompt, and from a raw one to another end", async () => {
    const prompt = "The sea is";
    const asked = await client().generate({ model, prompt, system: "Answer briefly.", options });
    const raw = await client().generate({ model, prompt, raw: true, options });
    assert.ok((asked.response ?? "").length > 5 && (raw.response ?? "").length > 5);
    assert.ok(asked.prompt_eval_count > raw.prompt_eval_count);
    let streamed = "";
    for await (const { response } of await client().generate({ model, prompt, raw: true, options, stream: true })) {
      streamed += response;
    }
    assert.equal(streamed, raw.response);
  });

  it("gets JSON of a schema", async () => {
    const { message } = await client().chat({ model, messages, format: answerSchema, options: long });
    assertStructured(JSON.parse(message.content));
  });

  // The small model calls tools only if it must choose between a call and JSON.
  it("calls tools with objects as arguments, streamed and not, and takes the results by name", async () => {
    const asked = [{ role: "user", content: toolQuestion }];
    const base = { model, tools, format: answerSchema, options: long };
    const { message } = await client().chat({ ...base, messages: asked });
    const calls = message.tool_calls ?? [];
    assert.ok(calls.length > 0, message.content);
    for (const { function: called } of calls) assertCall(called.name, called.arguments);
    const streamed: ToolCall[] = [];
    for await (const line of await client().chat({ ...base, messages: asked, stream: true })) {
      streamed.push(...(line.message.tool_calls ?? []));
    }
    const withoutId = ({ function: called }: ToolCall) => called;
    assert.deepEqual(streamed.map(withoutId), calls.map(withoutId));
    const results = calls.map(({ function: { name } }) => ({ role: "tool", content: "sunny", tool_name: name }));
    const answer = await client().chat({ model, messages: [...asked, message, ...results], options });
    assert.ok(answer.message.content.length > 5);
    assert.ok(answer.prompt_eval_count > 20);
  });

  it("shows the model", async () => {
    const { models } = await client().list();
    const [listed] = models;
    assert.ok(listed !== undefined && models.length === 1);
    assert.match(listed.digest, /^[0-9a-f]{64}$/);
    assert.notEqual(listed.digest, "0".repeat(64));
    assert.ok(listed.size > 1e6);
    const { models: running } = await client().ps();
    assert.deepEqual(
      running.map(({ name }) => name),
      [listed.name],
    );
    const shown = await client().show({ model: listed.name });
    const info = shown.model_info as unknown as Record<string, unknown>;
    assert.equal(shown.details.family, info["general.architecture"]);
    assert.match(shown.details.quantization_level, /^I?Q\d|^B?F\d\d/);
    assert.equal(info[`${shown.details.family}.context_length`], 1024);
    assert.ok(shown.capabilities.includes("completion"));
    assert.match((await client().version()).version, /^\d+\.\d+\.\d+$/);
  });

  it("embeds", async () => {
    const { embeddings } = await client().embed({ model, input: ["the sea", "the sea", "a table"] });
    const [first, same, other] = embeddings;
    assert.ok(first && same && other);
    assert.equal(embeddings.length, 3);
    const cosine = (a: number[], b: number[]) => a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);
    assert.ok(cosine(first, same) > 0.999);
    assert.ok(cosine(first, other) < 0.99);
    assert.equal((await client().embeddings({ model, prompt: "the sea" })).embedding.length, first.length);
  });

  it("ends the generation when it aborts", async () => {
    const aborting = client();
    const stream = await aborting.chat({
      model,
      messages,
      options: { temperature: 0, num_predict: 900 },
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const _line of stream) aborting.abort();
    }, /abort/i);
    await becomesIdle(server);
  });

  it("gets an error that names what is not supported", async () => {
    const asked = (changes: object) => client().chat({ model, messages, options, ...changes });
    await assert.rejects(
      asked({ messages: [{ role: "user", content: "?", images: [image] }] }),
      /takes text, not images/,
    );
    await assert.rejects(asked({ model: "nope" }), { name: "ResponseError", status_code: 404 });
    await assert.rejects(client().pull({ model: "llama3.2" }), /\/api\/pull is not supported.*troupe models/);
  });
});
