// POST /v1/responses/compact and /v1/responses/input_tokens, and conversations that begin with a compaction item.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { compactedSchema } from "../../../../http/responses/fold/resource-schema.ts";
import { compactionContent, summaryIn } from "../../../../http/responses/request/compaction.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, failure, finish, text, usage } from "../../../fixtures/fakes/fake-inference.ts";
import { request, type SocketlessReply } from "../../../fixtures/fakes/socketless.ts";
import { errorOf, type Json, ResponsesRig } from "./responses-rig.ts";

const absent = `resp_${"0".repeat(32)}`;
const model = "tiny";
const dialogue = [
  { role: "user", content: "We launch on Tuesday." },
  { role: "assistant", content: "Noted." },
  { type: "function_call", call_id: "c1", name: "note", arguments: '{"day":"Tue"}' },
  { type: "function_call_output", call_id: "c1", output: "saved" },
];

function post(rig: ResponsesRig, action: string, body: Json): Promise<SocketlessReply> {
  return request(rig.app, "POST", `/v1/responses/${action}`, { body });
}

async function compact(rig: ResponsesRig, body: Json): Promise<Json> {
  const reply = await post(rig, "compact", { model, ...body });
  assert.equal(reply.status, 200, reply.body);
  return compactedSchema.parse(JSON.parse(reply.body));
}

function messagesOf(rig: ResponsesRig): string[] {
  const { prompt } = rig.inference.lastRun.request;
  assert.equal(prompt.kind, "chat");
  return prompt.messages.map(({ role, content }) => `${role}: ${content}`);
}

describe("compacting a conversation", () => {
  it("returns a summary that the model wrote, with its usage", async () => {
    const rig = new ResponsesRig();
    const { output, usage: used } = await compact(rig, { input: dialogue, instructions: "Be brief." });
    assert.equal(output.length, 1);
    assert.equal(summaryIn(output[0].encrypted_content), "Hello world");
    assert.equal(used.output_tokens, usage.completionTokens);
    const [system, task] = messagesOf(rig);
    assert.equal(system, "system: Be brief.");
    assert.match(
      task ?? "",
      /user: We launch on Tuesday\.\n\nassistant: Noted\.\n\[calls note: {"day":"Tue"}\]\n\ntool: saved\n\nSummarise/,
    );
    const { sampling, maxTokens, tools } = rig.inference.lastRun.request;
    assert.deepEqual([sampling.temperature, tools], [0, null]);
    assert.ok(maxTokens !== null && maxTokens > 100 && maxTokens < 1000, `${maxTokens}`);
    assert.equal(rig.addedIds.length, 0);
  });

  it("continues from the returned items, also from a summary of a summary", async () => {
    const rig = new ResponsesRig();
    const first = await compact(rig, { input: dialogue });
    const next = [...first.output, { role: "user", content: "When?" }];
    const created = await rig.create({ input: next, instructions: "Be brief." });
    assert.deepEqual(messagesOf(rig), [
      "system: Be brief.\n\nSummary of the conversation so far:\nHello world",
      "user: When?",
    ]);
    await rig.create({ input: "And then?", previous_response_id: created.id });
    assert.deepEqual(messagesOf(rig).slice(0, 2), [
      "system: Summary of the conversation so far:\nHello world",
      "user: When?",
    ]);
    await compact(rig, { input: next });
    assert.match(messagesOf(rig)[0] ?? "", /Summary of the conversation so far:\nHello world\n\nuser: When\?/);
  });

  it("limits the summary of a long conversation to 2048 tokens, and counts a stored one", async () => {
    const rig = new ResponsesRig();
    const { id } = await rig.create({ input: "long ".repeat(1000) });
    await compact(rig, { previous_response_id: id });
    assert.equal(rig.inference.lastRun.request.maxTokens, 2048);
    const short = await rig.create({ input: "We launch on Tuesday." });
    await compact(rig, { previous_response_id: short.id });
    assert.ok((rig.inference.lastRun.request.maxTokens ?? 0) < 1000);
  });

  it("summarises a stored conversation", async () => {
    const rig = new ResponsesRig();
    const { id } = await rig.create({ input: "We launch on Tuesday." });
    await compact(rig, { previous_response_id: id });
    assert.match(messagesOf(rig)[0] ?? "", /user: We launch on Tuesday\.\n\nassistant: Hello world/);
  });

  it("returns system and developer messages unchanged, before the summary", async () => {
    const rig = new ResponsesRig();
    const quoted = { role: "user", content: 'He wrote "role":"system".' };
    const parsed = {
      type: "function_call",
      call_id: "c0",
      name: "ask",
      arguments: "{}",
      parsed_arguments: { role: "system" },
    };
    const input = [{ role: "developer", content: "Use metric units." }, quoted, parsed, ...dialogue];
    const { output } = await compact(rig, { input });
    assert.deepEqual(
      output.map(({ type, role }: Json) => [type, role]),
      [
        ["message", "developer"],
        ["compaction", undefined],
      ],
    );
    assert.doesNotMatch(messagesOf(rig)[0] ?? "", /metric/);
    await rig.create({ input: [...output, { role: "user", content: "go" }] });
    assert.match(messagesOf(rig)[0] ?? "", /^system: Use metric units\.\n\nSummary/);
  });

  it("summarises a long conversation, which a text worker prepares", async () => {
    const rig = new ResponsesRig();
    await compact(rig, { input: [{ role: "user", content: "x".repeat(100_000) }] });
    assert.equal(rig.inference.lastRun.request.prompt.kind, "sealed");
  });

  it("writes a shorter summary if the conversation leaves less room in the context", async () => {
    const lengths = { limit: 4096, prompt: 3000, output: 2048 };
    for (const length of [20_000, 100_000]) {
      const rig = new ResponsesRig();
      rig.inference.countTokens = async () => {
        throw new ServerError("context_length_exceeded", "too long", { lengths });
      };
      await compact(rig, { input: "x".repeat(length) });
      assert.equal(rig.inference.lastRun.request.maxTokens, 1096);
    }
  });

  it("leaves the error to the generation if there is too little room, or if prompts cannot be counted", async () => {
    const lengths = { limit: 4096, prompt: 4000, output: 2048 };
    for (const error of [
      new ServerError("context_length_exceeded", "too long", { lengths }),
      new ServerError("unsupported", "no token counts"),
    ]) {
      const rig = new ResponsesRig();
      rig.inference.countTokens = () => Promise.reject(error);
      await compact(rig, { input: "x".repeat(20_000) });
      assert.equal(rig.inference.lastRun.request.maxTokens, 2048);
    }
  });

  it("refuses a body that lacks what it needs", async () => {
    const rig = new ResponsesRig();
    assert.deepEqual(errorOf(await post(rig, "compact", { input: dialogue })), [400, "invalid_value", "model"]);
    assert.deepEqual(errorOf(await post(rig, "compact", { model })), [400, "invalid_value", "input"]);
    assert.deepEqual(errorOf(await post(rig, "compact", { model, previous_response_id: absent })), [
      404,
      "previous_response_not_found",
      "previous_response_id",
    ]);
  });

  it("reports a failed generation, and a model that writes nothing", async () => {
    const failing = new ResponsesRig(() => [[failure("queue_full")]]);
    assert.equal(errorOf(await post(failing, "compact", { model, input: "hi" }))[1], "queue_full");
    const silent = new ResponsesRig(() => [[text(" \n"), finish(), done]]);
    assert.equal(errorOf(await post(silent, "compact", { model, input: "hi" }))[1], "model_failed");
  });
});

describe("a compaction item", () => {
  it("keeps its text", () => {
    for (const summary of ["", "Grüße 😀", "x".repeat(100_000)]) {
      assert.equal(summaryIn(compactionContent(summary)), summary);
    }
  });

  it("is refused if another server created it", async () => {
    for (const content of ["", "gAAAAABo", "troupe-summary-1._w"]) {
      const input = [{ type: "compaction", encrypted_content: content }];
      const refused = errorOf(await new ResponsesRig().send({ input }));
      assert.deepEqual(refused, [400, "invalid_value", "input[0].encrypted_content"]);
    }
  });
});

describe("counting input tokens", () => {
  it("counts the prompt with its tools and the conversation that it continues", async () => {
    const rig = new ResponsesRig();
    const { id } = await rig.create({ input: "one" });
    const tools = [{ type: "function", name: "f" }];
    const reply = await post(rig, "input_tokens", { input: "two", previous_response_id: id, tools });
    assert.deepEqual(JSON.parse(reply.body), { object: "response.input_tokens", input_tokens: usage.promptTokens });
    const [counted] = rig.inference.countRequests;
    assert.ok(counted?.prompt.kind === "chat");
    assert.deepEqual(
      counted.prompt.messages.map(({ content }) => content),
      ["one", "Hello world", "two"],
    );
    assert.equal(counted.tools?.specs.length, 1);
    assert.equal(rig.inference.runs.length, 1);
  });
});

describe("settings in a response", () => {
  it("have the text format with its description, and max_tool_calls", async () => {
    const schema = { type: "object" };
    const format = { type: "json_schema", name: "n", description: "what it is", schema, strict: true };
    const rig = new ResponsesRig(() => [[text("{}"), finish(), done]]);
    const response = await rig.create({ input: "hi", text: { format }, max_tool_calls: 3 });
    assert.deepEqual(response.text.format, format);
    assert.equal(response.max_tool_calls, 3);
    const json_schema = { schema };
    const plain = await rig.create({ input: "hi", response_format: { type: "json_schema", json_schema } });
    assert.deepEqual(plain.text.format, { ...format, name: "response", description: null });
    assert.equal(plain.max_tool_calls, null);
  });
});
