import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { look, refused, refusedParams, taken } from "./messages-rig.ts";

const format = { type: "json_schema", schema: { type: "object" } };

async function templateArguments(body: object) {
  const { prompt } = await taken(body);
  assert.ok(prompt.kind === "chat");
  return prompt.templateArguments;
}

describe("the tools of a messages request", () => {
  it("are translated with their choice", async () => {
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
    const named = { type: "tool", name: "look" };
    assert.deepEqual((await taken({ tools, tool_choice: named })).tools, {
      specs: specs.slice(0, 1),
      required: true,
      parallel: false,
    });
    assert.equal((await taken({ tools, tool_choice: { type: "none" } })).tools, null);
    assert.equal((await taken({ tools: [] })).tools, null);
  });

  it("may have the names of server tools in this protocol, or of object properties", async () => {
    for (const name of ["web_search", "web_fetch", "code_execution", "constructor", "toString"]) {
      const { tools } = await taken({ tools: [{ ...look, name }], tool_choice: { type: "tool", name } });
      assert.deepEqual(
        tools?.specs.map((spec) => spec.name),
        [name],
      );
    }
  });

  it("are refused if the server does not run them, or if they conflict", async () => {
    const [message, param] = await refused({ tools: [look, { type: "web_search_20250305", name: "web_search" }] });
    assert.equal(param, "tools");
    assert.match(message, /web search is not enabled on this server; the setting enable_search/);
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
        { tools: [look], tool_choice: { type: "any" }, ignore_eos: true },
      ]),
      [
        "tools[0].type",
        "tools[0].name",
        "tools[0].input_schema.type",
        "tools",
        "tools",
        "tool_choice",
        "tool_choice",
        "grammar",
        "ignore_eos",
      ],
    );
  });
});

describe("deferred tools of a messages request", () => {
  const search = { name: "search", input_schema: { type: "object" } };
  const tools = [search, { ...look, defer_loading: true }];
  const declared = async (more: object) => (await taken({ tools, ...more })).tools?.specs.map(({ name }) => name);

  it("are declared after a tool result has referred to them", async () => {
    const messages = [
      { role: "user", content: "Look." },
      { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "search", input: {} }] },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "t1", content: [{ type: "tool_reference", tool_name: look.name }] },
        ],
      },
    ];
    assert.deepEqual(await declared({ messages: messages.slice(0, 1) }), ["search"]);
    assert.deepEqual(await declared({ messages }), ["search", look.name]);
    const { prompt } = await taken({ tools, messages });
    assert.equal(prompt.kind === "chat" && prompt.messages.at(-1)?.content, "The tool look can be called now.");
  });

  it("are declared if the tool choice names them", async () => {
    assert.deepEqual(await declared({ tool_choice: { type: "tool", name: look.name } }), [look.name]);
    assert.deepEqual(await declared({ tool_choice: { type: "any" } }), ["search"]);
  });
});

describe("the thinking of a messages request", () => {
  it("is switched by the protocol's field and by the shared one", async () => {
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
    assert.deepEqual(await templateArguments({ output_config: { effort: "max" }, reasoning_effort: "xhigh" }), {
      enableThinking: true,
      reasoningEffort: "xhigh",
    });
    assert.deepEqual(await templateArguments({}), {});
  });

  it("is refused if it contradicts itself or the output format", async () => {
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
  it("are translated to the generation request", async () => {
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

  it("define the output format in one of four places", async () => {
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

  it("are accepted if they have no effect or ask for nothing", async () => {
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

  it("are refused by name if unsupported, out of range or unknown", async () => {
    const bodies: readonly (readonly [string, object])[] = [
      ["skills", { container: { skills: [{ type: "custom", skill_id: "a" }] } }],
      ["mcp_servers[0].url", { mcp_servers: [{ type: "url", url: "https://a.example", name: "a" }] }],
      ["context_management.edits[0]", { context_management: { edits: [{ type: "compact_20260112" }] } }],
      ["session_id", { session_id: "s" }],
      ["web_search_options", { web_search_options: {} }],
      ["enable_code_execution", { enable_code_execution: true }],
      ["files", { files: [{ name: "a.csv" }] }],
      ["max_tool_rounds", { max_tool_rounds: 257 }],
      ["agent_permission", { agent_permission: "ask" }],
      ["logprobs", { logprobs: true }],
      ["temperature", { temperature: 2.1 }],
      ["max_tokens", { max_tokens: 0 }],
      ["stop_sequences[0]", { stop_sequences: [""] }],
      ["messages", { messages: [] }],
      ["messages[0].content", { messages: [{ role: "user", content: [] }] }],
      ["ignore_eos", { output_format: format, ignore_eos: true }],
      ["max_token", { max_token: 3 }],
    ];
    assert.deepEqual(
      await refusedParams(bodies.map(([, body]) => body)),
      bodies.map(([param]) => param),
    );
  });

  it("are accepted by count_tokens too, which ignores max_tokens and stream", async () => {
    const path = "/v1/messages/count_tokens";
    const counted = await taken({ system: "be", tools: [look], thinking: { type: "adaptive" } }, path);
    assert.equal(counted.tools?.specs.length, 1);
    assert.equal(counted.maxTokens, null);
    assert.equal((await taken({ max_tokens: 3, stream: true }, path)).maxTokens, null);
  });
});
