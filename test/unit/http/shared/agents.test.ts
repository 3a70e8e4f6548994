// Coding agents: requests as they send them by default, and the response fields that they need. Each turn has a tool
// call, in the format of Codex (responses), Claude Code (messages), opencode or Qwen Code (chat completions). The texts
// were written for the tests.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { done, FakeInference, finish, reasoning, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import type { Json } from "../responses/responses-rig.ts";

const schema = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  properties: {
    command: { type: "string", description: "To run" },
    timeout: { type: ["integer", "null"], minimum: 0 },
  },
  required: ["command"],
  additionalProperties: false,
};
const call = '{"command":"ls"}';

/** Sends a request to a model that thinks, writes a word and calls `tool`. */
async function turn(path: string, body: Json, tool: string, query = "", headers = {}) {
  const inference = new FakeInference(() => [
    [reasoning("Hm.")],
    [text("Look.")],
    toolCall(tool, [call.slice(0, 5), call.slice(5)]),
    [finish("tool_calls"), done],
  ]);
  const app = createApp({ inference, log: recordingLog() });
  const reply = await request(app, "POST", path, { body, query, headers });
  assert.deepEqual([reply.status, reply.headers["content-type"]], [200, "text/event-stream"], reply.body);
  const events: Json[] = [...reply.body.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data as string));
  const { prompt, tools, maxTokens } = inference.lastRun.request;
  assert.equal(prompt.kind, "chat");
  const { messages, templateArguments } = prompt;
  return { events, messages, templateArguments, maxTokens, toolNames: tools?.specs.map(({ name }) => name) ?? [] };
}

function toolMessage(content: string, toolCallId: string, name?: string) {
  return { role: "tool", content, ...(name === undefined ? {} : { name }), toolCallId };
}

function called(name: string, id: string) {
  return { role: "assistant", content: "Look.", reasoning: "Hm.", toolCalls: [{ id, name, arguments: call }] };
}

describe("coding agents", () => {
  const codex = {
    model: "default",
    stream: true,
    input: [
      { type: "message", id: "msg_1", role: "developer", content: [{ type: "input_text", text: "You code." }] },
      {
        type: "message",
        id: "msg_2",
        role: "developer",
        content: [
          { type: "input_text", text: "Skills: none." },
          { type: "input_text", text: "All is allowed." },
        ],
      },
      { type: "message", id: "msg_3", role: "user", content: [{ type: "input_text", text: "<cwd>/x</cwd>" }] },
      { type: "message", id: "msg_4", role: "user", content: [{ type: "input_text", text: "List." }] },
    ],
    tools: [
      { type: "function", name: "exec_command", description: "Runs", strict: false, parameters: schema },
      {
        type: "namespace",
        name: "mcp__echo",
        description: "Tools of echo.",
        tools: [{ type: "function", name: "say_back", description: "Says", strict: false, parameters: schema }],
      },
    ],
    tool_choice: "auto",
    parallel_tool_calls: true,
    reasoning: { summary: "auto", effort: "high" },
    text: { verbosity: "low" },
    store: false,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: "0123",
    client_metadata: { session_id: "0123", turn_id: "4567" },
  };

  it("Codex calls a function of a namespace, and receives both names", async () => {
    const { events, messages, toolNames } = await turn("/v1/responses", codex, "mcp__echo__say_back");
    assert.deepEqual(messages, [
      { role: "system", content: "You code.\n\nSkills: none.\nAll is allowed." },
      { role: "user", content: "<cwd>/x</cwd>" },
      { role: "user", content: "List." },
    ]);
    assert.deepEqual(toolNames, ["exec_command", "mcp__echo__say_back"]);
    const items = events.filter(({ type }) => type === "response.output_item.done").map(({ item }) => item);
    const [thought, said, made] = items;
    assert.deepEqual([thought.type, said.type, made.type], ["reasoning", "message", "function_call"]);
    assert.deepEqual([made.namespace, made.name, made.arguments], ["mcp__echo", "say_back", call]);
    const last = events.at(-1);
    assert.deepEqual([last.type, last.response.output], ["response.completed", items]);

    // The client returns the items unchanged.
    const output = [{ type: "input_text", text: "a b" }];
    const result = { type: "function_call_output", id: "fco_1", call_id: made.call_id, output };
    const next = await turn("/v1/responses", { ...codex, input: [...codex.input, ...items, result] }, "exec_command");
    assert.deepEqual(next.messages.slice(3), [
      called("mcp__echo__say_back", made.call_id),
      toolMessage("a b", made.call_id),
    ]);
  });

  it("Codex gets an error that names web search, which Codex offers by default, if the server has none", async () => {
    const tools = [...codex.tools, { type: "web_search", external_web_access: true }];
    const app = createApp({ inference: new FakeInference(), log: recordingLog() });
    const reply = await request(app, "POST", "/v1/responses", { body: { ...codex, tools } });
    const { error } = JSON.parse(reply.body);
    assert.deepEqual([reply.status, error.code, error.param], [400, "unsupported", "tools"]);
    assert.match(error.message, /web search is not enabled.*enable_search/);
  });

  it("Claude Code probes the server, then runs tools", async () => {
    const app = createApp({ inference: new FakeInference(), log: recordingLog() });
    assert.equal((await request(app, "HEAD", "/")).status, 200);

    const cache_control = { type: "ephemeral" };
    const question = [
      { type: "text", text: "<reminder/>" },
      { type: "text", text: "List.", cache_control },
    ];
    const body = {
      model: "tiny",
      system: [
        { type: "text", text: "x-header: 1" },
        { type: "text", text: "You code.", cache_control },
      ],
      messages: [
        { role: "user", content: question },
        { role: "system", content: "Agents: none." },
      ],
      tools: [{ name: "Bash", description: "Runs", input_schema: schema }],
      metadata: { user_id: '{"device_id":"0"}' },
      max_tokens: 32_000,
      thinking: { type: "adaptive" },
      context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
      output_config: { effort: "high" },
      stream: true,
    };
    const headers = { "x-api-key": "none", "anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2" };
    const first = await turn("/v1/messages", body, "Bash", "beta=true", headers);
    assert.deepEqual(first.messages, [
      { role: "system", content: "x-header: 1\nYou code." },
      { role: "user", content: "<reminder/>\nList." },
      { role: "system", content: "Agents: none." },
    ]);
    assert.deepEqual(
      [first.toolNames, first.maxTokens, first.templateArguments],
      [["Bash"], 32_000, { enableThinking: true, reasoningEffort: "high" }],
    );
    const blocks = first.events.flatMap(({ content_block: block }) => (block === undefined ? [] : [block]));
    assert.deepEqual(
      blocks.map(({ type }) => type),
      ["thinking", "text", "tool_use"],
    );
    const delta = first.events.find(({ type }) => type === "message_delta");
    assert.equal(delta.delta.stop_reason, "tool_use");

    const { id, name } = blocks[2];
    const answer = [
      { type: "thinking", thinking: "Hm.", signature: "" },
      { type: "text", text: "Look." },
      { type: "tool_use", id, name, input: JSON.parse(call) },
    ];
    const result = { type: "tool_result", tool_use_id: id, content: "a b", is_error: false, cache_control };
    const after = [...body.messages, { role: "assistant", content: answer }, { role: "user", content: [result] }];
    const next = await turn("/v1/messages", { ...body, messages: after }, "Bash", "beta=true", headers);
    assert.deepEqual(next.messages.slice(3), [called("Bash", id), toolMessage("a b", id, "Bash")]);
  });

  const chat = {
    model: "default",
    stream: true,
    stream_options: { include_usage: true },
    tools: [{ type: "function", function: { name: "bash", description: "Runs", parameters: schema } }],
  };

  it("opencode requests a session title, and returns reasoning with the calls", async () => {
    const { tools: _, ...plain } = chat;
    const question = { role: "user", content: "List." };
    const title = { role: "system", content: "You name talks." };
    const named = await turn(
      "/v1/chat/completions",
      { ...plain, max_tokens: 9, messages: [title, question, question] },
      "-",
    );
    assert.deepEqual([named.messages, named.toolNames], [[title, question, question], []]);

    const messages = [
      { role: "system", content: "You code." },
      question,
      {
        role: "assistant",
        content: "Look.",
        reasoning_content: "Hm.",
        tool_calls: [{ id: "call_0", type: "function", function: { name: "bash", arguments: call } }],
      },
      { role: "tool", tool_call_id: "call_0", content: "a b" },
    ];
    const { events, ...asked } = await turn("/v1/chat/completions", { ...chat, tool_choice: "auto", messages }, "bash");
    assert.deepEqual(asked.messages.slice(2), [called("bash", "call_0"), toolMessage("a b", "call_0")]);
    const deltas = events.flatMap(({ choices: [choice] }) => (choice === undefined ? [] : [choice.delta]));
    const [made] = deltas.flatMap(({ tool_calls }) => tool_calls ?? []);
    assert.deepEqual([made.index, made.type, made.function.name], [0, "function", "bash"]);
    assert.equal(deltas.map(({ reasoning_content: thought }) => thought ?? "").join(""), "Hm.");
    const usage = events.at(-1);
    assert.deepEqual([usage.choices, usage.usage.prompt_tokens], [[], 8]);
  });

  it("Qwen Code sends text, also of results, as parts", async () => {
    const part = (words: string) => [{ type: "text", text: words }];
    const messages = [
      { role: "system", content: "You code." },
      { role: "user", content: part("Here you are.") },
      { role: "assistant", content: "Thanks." },
      { role: "user", content: part("List.") },
      {
        role: "assistant",
        content: "Look.",
        tool_calls: [{ id: "call_0", type: "function", function: { name: "bash", arguments: call } }],
        reasoning_content: "Hm.",
      },
      { role: "tool", tool_call_id: "call_0", content: part("a b") },
    ];
    const asked = await turn("/v1/chat/completions", { ...chat, max_tokens: 8000, messages }, "bash");
    assert.deepEqual(asked.messages.slice(3), [
      { role: "user", content: "List." },
      called("bash", "call_0"),
      toolMessage("a b", "call_0"),
    ]);
  });
});
