// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Agent runs with the official clients. Some tools are external: the server calls them at a URL.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { checked, post, python, question, runs, shell, weather } from "./clients.ts";
import { type AgentRig, startAgents } from "./rig.ts";

let rig: AgentRig;
before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

describe("official clients", () => {
  it("OpenAI's reads an agent's stream, its response items and its continuation", async () => {
    const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none" });
    rig.script(runs("6 * 7"), "42", "again 42");
    const first = await client.responses.create({
      model: "tiny",
      input: "6 * 7?",
      tools: [{ type: "code_interpreter", container: { type: "auto" } }],
    });
    assert.deepEqual(
      first.output.map(({ type }) => type),
      ["code_interpreter_call", "message"],
    );
    const second = await client.responses.create({ model: "tiny", input: "again?", previous_response_id: first.id });
    assert.equal(second.output_text, "again 42");
    assert.deepEqual(
      rig
        .seen()
        .at(-1)!
        .map(({ role }) => role),
      ["user", "assistant", "tool", "assistant", "user"],
    );
    assert.match(rig.seen().at(-1)![2]!.content, /"result":"42"/, "the result is the one that the model had read");
    rig.script(runs("1"), "streamed");
    let text = "";
    const stream = await client.chat.completions.create({
      model: "tiny",
      stream: true,
      messages: [{ role: "user", content: "hi" }],
      tools: [{ type: "code_interpreter" } as never],
    });
    for await (const chunk of stream) text += chunk.choices?.[0]?.delta.content ?? "";
    assert.equal(text, "streamed");
  });

  it("Anthropic's accumulates the blocks of server tools", async () => {
    const client = new Anthropic({ baseURL: rig.url, apiKey: "none" });
    rig.script({ text: "Computing. ", calls: [[python, { code: "6 * 7" }]] }, "42");
    const stream = client.messages.stream({
      model: "tiny",
      max_tokens: 100,
      messages: [{ role: "user", content: "6 * 7?" }],
      tools: [{ type: "code_execution_20250522", name: "code_execution" }] as never,
    });
    const message = await stream.finalMessage();
    assert.deepEqual(
      message.content.map(({ type }) => type),
      ["text", "server_tool_use", "code_execution_tool_result", "text"],
    );
    assert.equal(message.stop_reason, "end_turn");
  });
});

describe("tools of the client that the server dispatches", () => {
  it("are posted to the URL, signed, and retried; a failure is a result", async () => {
    const received: { body: { name: string; arguments: unknown }; signature: string | undefined }[] = [];
    let failures = 1;
    const target = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      received.push({
        body: JSON.parse(Buffer.concat(chunks).toString()),
        signature: request.headers["x-troupe-signature"] as string,
      });
      response.statusCode = failures-- > 0 ? 503 : 200;
      response.end(JSON.stringify({ content: "sunny" }));
    });
    await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
    const { port } = target.address() as { port: number };
    const dispatching = await startAgents({
      settings: { dispatch: { url: `http://127.0.0.1:${port}/`, timeoutMs: 2000, secret: "key" } },
    });
    try {
      dispatching.script({ calls: [["get_weather", { city: "Bonn" }]] }, "It is sunny.");
      const ask = () =>
        post(`${dispatching.url}/v1/chat/completions`, {
          messages: [question],
          tools: [{ type: "function", function: weather }],
        });
      const body = await checked(await ask());
      assert.equal(body.choices[0].message.content, "It is sunny.");
      assert.deepEqual(
        received.map((one) => one.body),
        Array(2).fill({ name: "get_weather", arguments: { city: "Bonn" } }),
      );
      assert.match(received[0]?.signature ?? "", /^t=\d+,v1=[0-9a-f]{64}$/);
      assert.equal(body.agentic_tool_calls[0].result_content, "sunny");
      target.close();
      target.closeAllConnections();
      dispatching.script({ calls: [["get_weather", {}]] }, "sorry");
      const failed = await checked(await ask());
      assert.match(
        failed.agentic_tool_calls[0].result_content,
        /^\{"error":"no connection: .*"tool":"get_weather","status":"failed"\}$/,
      );
    } finally {
      await dispatching.stop();
      target.close();
    }
  });

  it("are shown as functions, also if they have the name of a tool that the server does not offer", async () => {
    const target = createServer((_, response) => response.end("done"));
    await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
    const { port } = target.address() as { port: number };
    const dispatching = await startAgents({
      settings: { groups: [], dispatch: { url: `http://127.0.0.1:${port}/`, timeoutMs: 2000, secret: null } },
    });
    const names = [python, shell, "constructor"];
    const calls = names.map((name) => [name, { commands: ["id"], code: "1" }] as const);
    const { parameters } = weather;
    try {
      dispatching.script({ calls }, "end");
      const tools = names.map((name) => ({ type: "function", name, parameters }));
      const response = await checked(await post(`${dispatching.url}/v1/responses`, { input: "hi", tools }));
      assert.deepEqual(
        response.output.map(({ type, name, output }: any) => [type, name, output]),
        [...names.map((name) => ["mcp_call", name, "done"]), ["message", undefined, undefined]],
      );
      dispatching.script({ calls }, "end");
      const message = await checked(
        await post(`${dispatching.url}/v1/messages`, {
          max_tokens: 99,
          messages: [question],
          tools: names.map((name) => ({ name, input_schema: parameters })),
        }),
      );
      assert.deepEqual(
        message.content.map(({ type }: any) => type),
        ["text"],
      );
    } finally {
      await dispatching.stop();
      target.close();
    }
  });
});
