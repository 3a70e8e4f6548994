import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { FakeInference } from "../../fixtures/fake-inference.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { request } from "../../fixtures/socketless.ts";

const messages = [{ role: "user", content: "hi" }];
const look = { name: "look", description: "looks", input_schema: { type: "object", properties: {} } };
const call = { type: "tool_use", id: "t1", name: "look", input: { at: 1 } };
const format = { type: "json_schema", schema: { type: "object" } };

/** The neutral request a body comes to. */
async function taken(body: object, path = "/v1/messages") {
  const inference = new FakeInference();
  const app = createApp({ inference, log: recordingLog() });
  const reply = await request(app, "POST", path, { body: { messages, ...body } });
  assert.equal(reply.status, 200, reply.body);
  return inference.runs[0]?.request ?? inference.countRequests[0]!;
}

async function conversation(body: object) {
  const { prompt } = await taken(body);
  assert.ok(prompt.kind === "chat");
  return prompt.messages;
}

async function templateArguments(body: object) {
  const { prompt } = await taken(body);
  assert.ok(prompt.kind === "chat");
  return prompt.templateArguments;
}

/** The message of the error a body is refused with, and the field it names. */
async function refused(body: object, path = "/v1/messages"): Promise<[message: string, param: string]> {
  const app = createApp({ inference: new FakeInference(), log: recordingLog() });
  const reply = await request(app, "POST", path, { body: { messages, ...body } });
  const { type, error, request_id } = JSON.parse(reply.body);
  assert.deepEqual([reply.status, type, error.type], [400, "error", "invalid_request_error"], reply.body);
  assert.equal(request_id, reply.headers["x-request-id"]);
  return [error.message, error.details.param];
}

async function refusedParams(bodies: readonly object[]): Promise<string[]> {
  return Promise.all(bodies.map(async (body) => (await refused(body))[1]));
}

describe("the conversation of a messages request", () => {
  it("puts the system text in front and joins messages of one role", async () => {
    const shown = await conversation({
      system: [
        { type: "text", text: "be", cache_control: { type: "ephemeral" } },
        { type: "text", text: "brief" },
      ],
      messages: [
        { role: "user", content: "a" },
        { role: "user", content: [{ type: "text", text: "b" }] },
        { role: "assistant", content: "c" },
        {
          role: "assistant",
          content: [
            { type: "text", text: "d" },
            { type: "text", text: "e", citations: null },
          ],
        },
        { role: "system", content: "now" },
        { role: "user", content: "f" },
      ],
    });
    assert.deepEqual(shown, [
      { role: "system", content: "be\nbrief" },
      { role: "user", content: "a\nb" },
      { role: "assistant", content: "cde" },
      { role: "system", content: "now" },
      { role: "user", content: "f" },
    ]);
  });

  it("keeps thinking and calls, gives each result a message of its own, and says which tool failed", async () => {
    const shown = await conversation({
      messages: [
        { role: "user", content: "go" },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm", signature: "abc" },
            { type: "redacted_thinking", data: "xyz" },
            { type: "server_tool_use", id: "s1", name: "web_search", input: {} },
            { type: "web_search_tool_result", tool_use_id: "s1", content: [] },
            { type: "text", text: "I look" },
            { ...call, caller: { type: "direct" } },
            { ...call, id: "t2", name: "listen", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "t2", is_error: true, content: "deaf" },
            {
              type: "tool_result",
              tool_use_id: "t1",
              content: [
                { type: "text", text: "x" },
                { type: "text", text: "y" },
              ],
            },
            { type: "text", text: "and?" },
          ],
        },
      ],
    });
    assert.deepEqual(shown, [
      { role: "user", content: "go" },
      {
        role: "assistant",
        content: "I look",
        reasoning: "hm",
        toolCalls: [
          { id: "t1", name: "look", arguments: '{"at":1}' },
          { id: "t2", name: "listen", arguments: "{}" },
        ],
      },
      { role: "tool", content: "The tool failed: deaf", name: "listen", toolCallId: "t2" },
      { role: "tool", content: "x\ny", name: "look", toolCallId: "t1" },
      { role: "user", content: "and?" },
    ]);
  });

  it("refuses results without a call, calls without a result, and an assistant's message to continue", async () => {
    const result = { type: "tool_result", tool_use_id: "t1", content: "x" };
    const user = (...content: object[]) => ({ role: "user", content });
    const called = { role: "assistant", content: [call] };
    const hi = { type: "text", text: "hi" };
    const params = await refusedParams(
      [
        [user(result)],
        [user(hi), called, user(result), user(result)],
        [user(hi), called, user({ ...result, tool_use_id: "t2" })],
        [user(hi), called, user(hi, result)],
        [user(hi), called, user(result), { role: "assistant", content: "ok" }, user(result)],
        [user(hi), { role: "assistant", content: [call, { ...call, id: "t2" }] }, user(result)],
        [user(hi), called],
        [user(hi), { role: "assistant", content: "I" }],
      ].map((wrong) => ({ messages: wrong })),
    );
    assert.deepEqual(params, [
      "messages[0].content[0].tool_use_id",
      "messages[3].content[0].tool_use_id",
      "messages[2].content[0].tool_use_id",
      "messages[2].content[0]",
      "messages[4].content[0].tool_use_id",
      "messages",
      "messages",
      "messages",
    ]);
  });

  it("refuses by name, and where they stand, blocks that no text model takes", async () => {
    const image = { type: "image", source: { type: "url", url: "https://a.example/b.png" } };
    const [message, param] = await refused({
      messages: [{ role: "user", content: [{ type: "text", text: "" }, image] }],
    });
    assert.equal(param, "messages[0].content[1]");
    assert.match(message, /^messages\[0\]\.content\[1\]: a content block of type "image" is not supported/);
    const inResult = { type: "tool_result", tool_use_id: "t1", content: [image] };
    assert.deepEqual(
      await refusedParams([
        { messages: [...messages, { role: "assistant", content: [call] }, { role: "user", content: [inResult] }] },
        { messages: [{ role: "user", content: [{ type: "document", source: {} }] }] },
        { messages: [{ role: "user", content: [call] }] },
        { messages: [{ role: "tool", content: "x" }] },
        { system: [image] },
      ]),
      [
        "messages[2].content[0].content[0]",
        "messages[0].content[0]",
        "messages[0].content[0].type",
        "messages[0].role",
        "system[0]",
      ],
    );
  });

  it("refuses an input nested deeper than could be written again", async () => {
    const input = JSON.parse(`${'{"a":'.repeat(70)}1${"}".repeat(70)}`);
    const [message] = await refused({
      messages: [...messages, { role: "assistant", content: [{ ...call, input }] }, ...messages],
    });
    assert.match(message, /input: expected an object of at most/);
  });
});

describe("the tools of a messages request", () => {
  it("come with the choice of them", async () => {
    const tools = [look, { ...look, type: "custom", name: "listen", description: undefined, strict: true }];
    const specs = [
      { name: "look", description: "looks", parameters: look.input_schema, strict: false },
      { name: "listen", description: null, parameters: look.input_schema, strict: true },
    ];
    assert.deepEqual((await taken({ tools })).tools, { specs, required: false, parallel: true });
    assert.deepEqual((await taken({ tools, tool_choice: { type: "any" } })).tools, {
      specs,
      required: true,
      parallel: true,
    });
    const named = { type: "tool", name: "look", disable_parallel_tool_use: true };
    assert.deepEqual((await taken({ tools, tool_choice: named })).tools, {
      specs: specs.slice(0, 1),
      required: true,
      parallel: false,
    });
    assert.equal((await taken({ tools, tool_choice: { type: "none" } })).tools, null);
    assert.equal((await taken({ tools: [] })).tools, null);
  });

  it("are refused by index where the vendor's servers run them, and where they contradict each other", async () => {
    const [message, param] = await refused({ tools: [look, { type: "web_search_20250305", name: "web_search" }] });
    assert.equal(param, "tools[1]");
    assert.match(message, /a tool of type "web_search_20250305" is not supported/);
    assert.deepEqual(
      await refusedParams([
        { tools: [{ ...look, type: "web_search_19990101" }] },
        { tools: [{ ...look, name: "a b" }] },
        { tools: [{ ...look, input_schema: { type: "string" } }] },
        { tools: [{ ...look, defer_loading: true }] },
        { tools: [look, look] },
        { tools: [look], tool_choice: { type: "tool", name: "listen" } },
        { tool_choice: { type: "any" } },
        { tools: [look], grammar: { type: "regex", value: "a" } },
      ]),
      [
        "tools[0].type",
        "tools[0].name",
        "tools[0].input_schema.type",
        "tools[0].defer_loading",
        "tools",
        "tool_choice",
        "tool_choice",
        "grammar",
      ],
    );
  });
});

describe("the thinking of a messages request", () => {
  it("is switched by the vendor's field and by our own", async () => {
    const budget = await taken({ thinking: { type: "enabled", budget_tokens: 2000 }, max_tokens: 4000 });
    assert.equal(budget.reasoningBudget, 2000);
    assert.deepEqual(await templateArguments({ thinking: { type: "enabled", budget_tokens: 1 } }), {
      enableThinking: true,
    });
    assert.deepEqual(await templateArguments({ thinking: { type: "adaptive" }, output_config: { effort: "max" } }), {
      enableThinking: true,
      reasoningEffort: "xhigh",
    });
    assert.deepEqual(await templateArguments({ thinking: { type: "disabled" } }), { enableThinking: false });
    assert.deepEqual(await templateArguments({ reasoning_effort: "none" }), {
      enableThinking: false,
      reasoningEffort: "off",
    });
    assert.deepEqual(await templateArguments({ output_config: { effort: "low" } }), { reasoningEffort: "low" });
    assert.deepEqual(await templateArguments({}), {});
  });

  it("is refused where it contradicts itself or what the output must be", async () => {
    const thinking = { type: "enabled", budget_tokens: 100 };
    assert.deepEqual(
      await refusedParams([
        { thinking, max_tokens: 100 },
        { thinking, enable_thinking: false },
        { thinking, reasoning_effort: "off" },
        { thinking: { type: "disabled" }, reasoning_effort: "high" },
        { reasoning_effort: "low", output_config: { effort: "high" } },
        { thinking, output_config: { format } },
        { thinking, tools: [look], tool_choice: { type: "any" } },
        { thinking: { type: "enabled" } },
        { thinking: { type: "between_tools" } },
      ]),
      [
        "thinking.budget_tokens",
        "enable_thinking",
        "reasoning_effort",
        "reasoning_effort",
        "reasoning_effort",
        "thinking",
        "thinking",
        "thinking.budget_tokens",
        "thinking",
      ],
    );
  });
});

describe("the other fields of a messages request", () => {
  it("come to the neutral request", async () => {
    const asked = await taken({
      model: "tiny",
      max_tokens: 7,
      stop_sequences: ["\n", "##"],
      temperature: 0.5,
      top_p: 0.9,
      top_k: 40,
      min_p: 0.1,
      truncate_sequence: true,
      priority: 3,
    });
    assert.deepEqual(
      [asked.model, asked.maxTokens, asked.stop, asked.truncatePrompt, asked.priority],
      ["tiny", 7, ["\n", "##"], true, 3],
    );
    const { temperature, topP, topK, minP } = asked.sampling;
    assert.deepEqual([temperature, topP, topK, minP], [0.5, 0.9, 40, 0.1]);
    assert.equal(asked.series, null);
    assert.equal((await taken({ stream: true })).series, "/v1/messages");
  });

  it("say what the output must be, in one of four places", async () => {
    const grammar = { kind: "json_schema", schema: format.schema };
    const ours = { type: "json_schema", json_schema: { schema: format.schema } };
    for (const [field, body] of [
      ["output_config.format", { output_config: { format } }],
      ["output_format", { output_format: format }],
      ["response_format", { response_format: ours }],
      ["grammar", { grammar: { type: "json_schema", value: format.schema } }],
    ] as const) {
      assert.deepEqual((await taken(body)).grammar, { ...grammar, field });
    }
    assert.deepEqual(
      await refusedParams([
        { output_config: { format }, output_format: format },
        { output_format: format, response_format: ours },
        { output_format: format, grammar: { type: "regex", value: "a" } },
      ]),
      ["output_config", "output_config", "output_config"],
    );
  });

  it("are taken where they change nothing or ask for nothing", async () => {
    await taken({
      metadata: { user_id: "u" },
      service_tier: "auto",
      betas: ["x"],
      cache_control: { type: "ephemeral" },
      container: null,
      mcp_servers: [],
      files: [],
      logprobs: false,
      agent_permission: "deny",
      enable_code_execution: false,
      context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
    });
    await taken({ stream: true, agent_permission: "ask" });
    await taken({ container: { id: null, skills: [] } });
    await taken({ output_format: format, response_format: { type: "text" } });
  });

  it("are refused by name where they are not built, out of range or unknown", async () => {
    const bodies: readonly (readonly [string, object])[] = [
      ["container", { container: { skills: [{ type: "custom", skill_id: "a" }] } }],
      ["mcp_servers", { mcp_servers: [{ type: "url", url: "https://a.example", name: "a" }] }],
      ["context_management.edits[0]", { context_management: { edits: [{ type: "compact_20260112" }] } }],
      ["session_id", { session_id: "s" }],
      ["web_search_options", { web_search_options: {} }],
      ["enable_code_execution", { enable_code_execution: true }],
      ["files", { files: [{ name: "a.csv" }] }],
      ["max_tool_rounds", { max_tool_rounds: 3 }],
      ["agent_permission", { agent_permission: "ask" }],
      ["logprobs", { logprobs: true }],
      ["temperature", { temperature: 2.1 }],
      ["max_tokens", { max_tokens: 0 }],
      ["stop_sequences[0]", { stop_sequences: [""] }],
      ["messages", { messages: [] }],
      ["messages[0].content", { messages: [{ role: "user", content: [] }] }],
      ["ignore_eos", { output_format: format, ignore_eos: true }],
      ["max_token", { max_token: 3 }],
      ["n", { n: 2 }],
    ];
    assert.deepEqual(
      await refusedParams(bodies.map(([, body]) => body)),
      bodies.map(([param]) => param),
    );
  });

  it("are those of count_tokens too, but for max_tokens and stream", async () => {
    const path = "/v1/messages/count_tokens";
    const counted = await taken({ system: "be", tools: [look], thinking: { type: "adaptive" } }, path);
    assert.equal(counted.tools?.specs.length, 1);
    assert.equal(counted.maxTokens, null);
    assert.equal((await refused({ max_tokens: 3 }, path))[1], "max_tokens");
    assert.equal((await refused({ stream: true }, path))[1], "stream");
  });
});
