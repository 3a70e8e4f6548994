// Field aliases: names that other servers use for a field. An alias has the meaning of its field. Different values for both are
// an error.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });
const schema = { type: "object" };

const bodies: Readonly<Record<string, object>> = {
  "/v1/chat/completions": { messages: "hi" },
  "/v1/completions": { prompt: "hi" },
  "/v1/responses": { input: "hi", store: false },
  "/v1/messages": { messages: [{ role: "user", content: "hi" }] },
};

async function send(path: string, fields: object) {
  const reply = await request(app, "POST", path, { body: { ...bodies[path], ...fields } });
  const { error } = JSON.parse(reply.body);
  return { ...reply, param: error?.details?.param ?? error?.param };
}

async function asked(path: string, fields: object) {
  const { status, body, headers } = await send(path, fields);
  assert.deepEqual([status, headers["x-ignored-fields"]], [200, undefined], body);
  return inference.lastRun.request;
}

for (const path of Object.keys(bodies)) {
  describe(`an alias on ${path}`, () => {
    it("is the penalty or the limit of its field", async () => {
      assert.equal((await asked(path, { repeat_penalty: 1.5 })).sampling.repetitionPenalty, 1.5);
      assert.equal((await asked(path, { n_predict: 7 })).maxTokens, 7);
      assert.equal((await asked(path, { n_predict: -1 })).maxTokens, null);
      assert.equal((await asked(path, { max_completion_tokens: 7 })).maxTokens, 7);
    });

    it("is a minimum of tokens, and tokens that end the output", async () => {
      const { minTokens, maxTokens, stopTokens } = await asked(path, {
        min_tokens: 7,
        max_tokens: 7,
        stop_token_ids: [3, 0],
      });
      assert.deepEqual([minTokens, maxTokens, stopTokens], [7, 7, [3, 0]]);
      assert.equal((await asked(path, { min_tokens: 7, n_predict: -1 })).minTokens, 7);
    });

    it("is the grammar of its field", async () => {
      const cases: readonly (readonly [object, object])[] = [
        [{ guided_json: schema }, { kind: "json_schema", schema, field: "guided_json" }],
        [{ guided_regex: "a+" }, { kind: "regex", pattern: "a+" }],
        [{ guided_choice: ["a.b", "c|d"] }, { kind: "regex", pattern: "a\\.b|c\\|d" }],
        [{ guided_grammar: 'start: "a"' }, { kind: "lark", grammar: 'start: "a"' }],
        [{ structured_outputs: { json: schema } }, { kind: "json_schema", schema, field: "structured_outputs.json" }],
        [{ structured_outputs: { choice: ["yes", "no"] } }, { kind: "regex", pattern: "yes|no" }],
      ];
      for (const [fields, grammar] of cases) assert.deepEqual((await asked(path, fields)).grammar, grammar);
    });

    it("is refused if it contradicts its field", async () => {
      for (const [fields, param] of [
        [{ repeat_penalty: 1.5, repetition_penalty: 1.1 }, "repeat_penalty"],
        [{ max_tokens: 5, n_predict: 6 }, "n_predict"],
        [{ guided_regex: "a", guided_json: schema }, "guided_regex"],
        [{ grammar: { type: "regex", value: "a" }, structured_outputs: { regex: "a" } }, "structured_outputs.regex"],
        [{ n_predict: -2 }, "n_predict"],
        [{ min_tokens: 6, max_tokens: 5 }, "min_tokens"],
        [{ min_tokens: 6, n_predict: 5 }, "min_tokens"],
        [{ stop_token_ids: [-1] }, "stop_token_ids[0]"],
        [{ stop_token_ids: new Array(65).fill(1) }, "stop_token_ids"],
      ] as const) {
        const reply = await send(path, fields);
        assert.deepEqual([reply.status, reply.param], [400, param], reply.body);
      }
    });
  });
}

for (const path of ["/v1/chat/completions", "/v1/responses", "/v1/messages"]) {
  it(`think is the thinking switch or the effort on ${path}`, async () => {
    const argumentsOf = async (fields: object) => {
      const { prompt } = await asked(path, fields);
      return prompt.kind === "chat" ? prompt.templateArguments : null;
    };
    assert.deepEqual(await argumentsOf({ think: false }), { enableThinking: false });
    assert.deepEqual(await argumentsOf({ enable_thinking: true, think: true }), { enableThinking: true });
    assert.deepEqual(await argumentsOf({ think: "low" }), { enableThinking: true, reasoningEffort: "low" });
    assert.equal((await send(path, { think: true, enable_thinking: false })).param, "think");
  });

  it(`chat_template_kwargs sets thinking and any variable of the template on ${path}`, async () => {
    const kwargs = (variables: object) => ({ chat_template_kwargs: variables });
    const { prompt } = await asked(path, kwargs({ enable_thinking: false, reasoning_effort: "none", persona: "Ann" }));
    assert.deepEqual(prompt.kind === "chat" && prompt.templateArguments, {
      enableThinking: false,
      reasoningEffort: "off",
      variables: { persona: "Ann" },
    });
    const both = await send(path, { ...kwargs({ enable_thinking: true }), enable_thinking: false });
    assert.equal(both.param, "chat_template_kwargs.enable_thinking");
    assert.equal((await send(path, kwargs({ messages: [] }))).param, "chat_template_kwargs.messages");
  });
}
