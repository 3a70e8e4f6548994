// Agent runs of the real command with the real default model, over three protocols with the official clients. The model is
// forced to call Python; then it reads the result and writes its response.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const flags = ["--max-model-len", "2048", "--max-seqs", "4", "--agent", "--sandbox", "on", "--sandbox-network", "none"];
const question = "What is 17 * 23? Use Python.";

describe("an agent run of the real model", () => {
  let server: RunningServer;
  let isReal = false;

  before(async () => {
    const model = await realModel();
    isReal = model.isReal;
    server = await startServer(["-m", model.path, ...flags]);
  });
  after(async () => {
    await server.stop();
  });

  it("runs Python over chat completions, and reports it in the stream", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
    const body = {
      model: "default",
      temperature: 0,
      max_tokens: 150,
      messages: [{ role: "user" as const, content: question }],
      tools: [{ type: "code_interpreter" }] as never,
      tool_choice: { type: "code_interpreter" } as never,
    };
    const whole = (await client.chat.completions.create(body)) as OpenAI.ChatCompletion & {
      readonly session_id: string;
      readonly agentic_tool_calls: readonly { readonly name: string; readonly result_content: string }[];
    };
    assert.equal(whole.agentic_tool_calls[0]?.name, "service_execute_python");
    if (isReal) assert.match(whole.agentic_tool_calls[0]?.result_content ?? "", /391/);
    assert.ok((whole.choices[0]?.message.content ?? "") !== "");
    const phases: unknown[] = [];
    const stream = await client.chat.completions.create({ ...body, stream: true });
    for await (const chunk of stream) if ("phase" in chunk) phases.push(chunk.phase);
    assert.deepEqual(phases.slice(0, 2), ["calling", "complete"]);
    const session = await fetch(`${server.url}/v1/sessions/${whole.session_id}`);
    assert.equal(session.status, 200);
  });

  it("runs Python over responses, and continues the response", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
    const common = { model: "default", temperature: 0, max_output_tokens: 150 };
    const tools: OpenAI.Responses.Tool[] = [{ type: "code_interpreter", container: { type: "auto" } }];
    const first = await client.responses.create({
      ...common,
      input: question,
      tools,
      tool_choice: { type: "code_interpreter" },
    });
    const call = first.output.find((item) => item.type === "code_interpreter_call");
    assert.ok(call !== undefined && first.output.some(({ type }) => type === "message"));
    assert.match(call.container_id, /^cntr_sess_/);
    const second = await client.responses.create({ ...common, input: "Thank you.", previous_response_id: first.id });
    assert.ok(second.output.length > 0);
  });

  it("runs Python over messages", async () => {
    const client = new Anthropic({ baseURL: server.url, apiKey: "any", maxRetries: 0 });
    const stream = client.messages.stream({
      model: "default",
      max_tokens: 150,
      temperature: 0,
      messages: [{ role: "user", content: question }],
      tools: [{ type: "code_execution_20250522", name: "code_execution" }] as never,
      tool_choice: { type: "tool", name: "code_execution" },
    });
    const { content } = await stream.finalMessage();
    assert.deepEqual(
      content.slice(0, 2).map(({ type }) => type),
      ["server_tool_use", "code_execution_tool_result"],
    );
  });

  it("rejects tools that the server does not offer", async () => {
    const plain = await startServer(["-m", (await realModel()).path, "--max-model-len", "512", "--max-seqs", "1"]);
    try {
      const reply = await fetch(`${plain.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ messages: [{ role: "user", content: "hi" }], tools: [{ type: "code_interpreter" }] }),
      });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /enable_code_execution/);
    } finally {
      await plain.stop();
    }
  });
});
