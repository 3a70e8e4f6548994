import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const log = recordingLog();
const app = createApp({ inference, log, config: { accessLog: false } });

/** Translates a valid chat body. Returns the inference request. */
async function asked(body: object) {
  const reply = await request(app, "POST", "/v1/chat/completions", { body: { messages: "hi", ...body } });
  assert.equal(reply.status, 200, reply.body);
  // The client and the time do not come from the body. Other tests check them: client.test.ts, and one below.
  const { client: _, receivedAt: __, ...rest } = inference.lastRun.request;
  return rest;
}

describe("a chat request", () => {
  it("leaves omitted sampling fields to the model, and has the defaults of the contract for others", async () => {
    assert.deepEqual(await asked({}), {
      model: "tiny",
      adapter: null,
      prompt: { kind: "chat", messages: [{ role: "user", content: "hi" }], templateArguments: {} },
      sampling: {
        temperature: null,
        topK: null,
        topP: null,
        minP: null,
        presencePenalty: null,
        frequencyPenalty: null,
        repetitionPenalty: null,
        dry: null,
        logitBias: [],
        seed: null,
        topLogprobs: null,
      },
      choices: 1,
      candidates: 1,
      priority: 0,
      grammar: null,
      tools: null,
      series: null,
      promptLogprobs: null,
      reasoningBudget: null,
      stop: [],
      minTokens: 0,
      maxTokens: null,
      ignoreEos: false,
      stopTokens: [],
      truncatePrompt: false,
      fields: { prompt: "messages", maxTokens: "max_tokens" },
    });
  });

  it("treats null as omitted in every optional field", async () => {
    const fields =
      "model n stop max_tokens max_completion_tokens ignore_eos truncate_sequence temperature top_p top_k min_p presence_penalty " +
      "frequency_penalty repetition_penalty logit_bias dry_multiplier dry_base dry_allowed_length dry_sequence_breakers seed " +
      "grammar adapter tools tool_choice user stream stream_options logprobs top_logprobs enable_thinking reasoning_effort " +
      "chat_template_kwargs response_format web_search_options enable_shell max_tool_rounds session_id files agent_permission " +
      "code_execution_permission priority reasoning_budget metadata service_tier parallel_tool_calls store safety_identifier " +
      "verbosity prediction prompt_cache_key prompt_cache_retention prompt_cache_options functions function_call audio " +
      "modalities moderation";
    const nulls = Object.fromEntries(fields.split(" ").map((field) => [field, null]));
    assert.deepEqual(await asked(nulls), await asked({}));
  });

  it("translates every field", async () => {
    const { sampling, ...rest } = await asked({
      model: "other",
      adapter: "an adapter",
      temperature: 0,
      top_p: 0.5,
      top_k: 40,
      min_p: 0.1,
      presence_penalty: -2,
      frequency_penalty: 2,
      repetition_penalty: 1.1,
      logit_bias: { 5: -100, 17: 3.5 },
      dry_multiplier: 0.8,
      dry_allowed_length: 3,
      seed: -7,
      logprobs: true,
      top_logprobs: 20,
      n: 64,
      stop: ["a", "b"],
      min_tokens: 9,
      max_tokens: 9,
      ignore_eos: true,
      stop_token_ids: [2, 0],
      chat_template_kwargs: { persona: { name: "Ann" }, date_string: "today" },
      truncate_sequence: true,
      reasoning_effort: "high",
      reasoning_budget: 0,
      priority: -1000,
    });
    assert.deepEqual(sampling, {
      temperature: 0,
      topP: 0.5,
      topK: 40,
      minP: 0.1,
      presencePenalty: -2,
      frequencyPenalty: 2,
      repetitionPenalty: 1.1,
      dry: { multiplier: 0.8, base: 1.75, allowedLength: 3, sequenceBreakers: ["\n", ":", '"', "*"] },
      logitBias: [
        [5, -100],
        [17, 3.5],
      ],
      seed: -7,
      topLogprobs: 20,
    });
    assert.deepEqual(rest, {
      model: "other",
      adapter: { alias: "an adapter" },
      prompt: {
        kind: "chat",
        messages: [{ role: "user", content: "hi" }],
        templateArguments: {
          enableThinking: true,
          reasoningEffort: "high",
          variables: { persona: { name: "Ann" }, date_string: "today" },
        },
      },
      choices: 64,
      candidates: 64,
      priority: -1000,
      grammar: null,
      tools: null,
      series: null,
      promptLogprobs: null,
      reasoningBudget: 0,
      stop: ["a", "b"],
      minTokens: 9,
      maxTokens: 9,
      ignoreEos: true,
      stopTokens: [2, 0],
      truncatePrompt: true,
      fields: { prompt: "messages", maxTokens: "max_tokens" },
    });
  });

  it("accepts unsupported fields with values that ask for nothing", async () => {
    await asked({ tools: [], tool_choice: "none", files: [], enable_shell: false, response_format: { type: "text" } });
    await asked({ tool_choice: "auto", functions: [], function_call: "auto", modalities: ["text"] });
    await asked({ agent_permission: "ask", stream: true });
    await asked({ agent_permission: "auto", code_execution_permission: "auto", parallel_tool_calls: true });
    await asked({ code_execution_permission: "deny" });
  });

  const variants: readonly (readonly [string, object, object])[] = [
    ["top_k -1 is off", { top_k: -1 }, { top_k: 0 }],
    ["logprobs false is none", { logprobs: false }, {}],
    ["logprobs alone reports no alternatives", { logprobs: true }, { logprobs: true, top_logprobs: 0 }],
    ["one stop string is a list of one", { stop: "x" }, { stop: ["x"] }],
    ["max_completion_tokens is max_tokens", { max_completion_tokens: 4 }, { max_tokens: 4, max_completion_tokens: 4 }],
    ["dry_* without a multiplier is off", { dry_base: 2, dry_allowed_length: 4 }, { dry_multiplier: 0 }],
    ["model default is the default model", { model: "default" }, { model: "tiny" }],
    ["effort none is off", { reasoning_effort: "none" }, { reasoning_effort: "off", enable_thinking: false }],
    [
      "template kwargs are the fields of the same name",
      { chat_template_kwargs: { enable_thinking: true } },
      { enable_thinking: true },
    ],
    ["thinking is enable_thinking", { chat_template_kwargs: { thinking: false } }, { enable_thinking: false }],
  ];
  for (const [what, one, other] of variants) {
    it(what, async () => {
      const [{ fields: _one, ...first }, { fields: _other, ...second }] = [await asked(one), await asked(other)];
      assert.deepEqual(first, second);
    });
  }

  it("refuses template variables that are reserved, misspelt, too many, too deep or too long, by name", async () => {
    let deep: unknown = 1;
    for (let i = 0; i < 20; i++) deep = [deep];
    const refused: readonly (readonly [object, string, RegExp])[] = [
      ...["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "namespace"].map(
        (name) => [{ [name]: "x" }, `chat_template_kwargs.${name}`, /reserved/] as const,
      ),
      [{ "a b": 1 }, "chat_template_kwargs.a b", /letters, digits/],
      [{ enable_thinkng: true }, "chat_template_kwargs.enable_thinkng", /did you mean "enable_thinking"/],
      [{ enable_thinking: "yes" }, "chat_template_kwargs.enable_thinking", /boolean|true or false/],
      [{ thinking: true, enable_thinking: false }, "chat_template_kwargs.thinking", /contradicts/],
      [{ deep }, "chat_template_kwargs", /16 deep/],
      [{ list: new Array(1001).fill(1) }, "chat_template_kwargs", /1000 values/],
      [{ text: "x".repeat(70_000) }, "chat_template_kwargs", /65536 characters/],
    ];
    for (const [chat_template_kwargs, param, words] of refused) {
      const body = { messages: "hi", chat_template_kwargs };
      const reply = await request(app, "POST", "/v1/chat/completions", { body });
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.param], [400, param], reply.body);
      assert.match(error.message, words);
    }
  });

  it("carries its arrival time and the name of its latency series", async () => {
    const before = Date.now();
    assert.equal((await asked({ stream: true })).series, "/v1/chat/completions");
    const { receivedAt } = inference.lastRun.request;
    assert.ok(receivedAt >= before && receivedAt < Date.now() + 1, String(receivedAt));
  });

  it("responds to any JSON with 200 or a 4xx", async () => {
    const known = [
      "messages",
      "model",
      "stop",
      "n",
      "logit_bias",
      "tools",
      "tool_choice",
      "seed",
      "stream_options",
      "response_format",
    ];
    const value = fc.oneof(
      fc.jsonValue(),
      fc.array(fc.record({ role: fc.constantFrom("user", "tool", "x"), content: fc.jsonValue() }), { maxLength: 3 }),
      fc.record({ type: fc.constantFrom("function", "allowed_tools", "custom"), function: fc.jsonValue() }),
    );
    const body = fc.oneof(fc.jsonValue(), fc.dictionary(fc.constantFrom(...known), value));
    await fc.assert(
      fc.asyncProperty(body, async (any) => {
        const options = { body: JSON.stringify(any), headers: { "content-type": "application/json" } };
        const { status } = await request(app, "POST", "/v1/chat/completions", options);
        assert.ok(status === 200 || (status >= 400 && status < 500), String(status));
      }),
      { numRuns: 300 },
    );
    assert.deepEqual(
      log.lines.filter(({ level }) => level === "error"),
      [],
    );
  });
});
