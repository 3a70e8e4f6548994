import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { createApp } from "../../../../http/app.ts";
import { chatCompletionSchema } from "../../../../http/chat/schemas.ts";
import {
  done,
  FakeInference,
  finish,
  reasoning,
  text,
  toolCall,
  usage,
} from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });

/** Returns the response body for the events. Asserts that it matches the schema of the API document. */
async function answered(events: readonly GenerateEvent[], body: object = {}) {
  inference.script = () => [events];
  const reply = await request(app, "POST", "/v1/chat/completions", { body: { messages: "hi", ...body } });
  assert.equal(reply.status, 200, reply.body);
  const answer = JSON.parse(reply.body);
  chatCompletionSchema.parse(answer);
  return answer;
}

const wireUsage = {
  prompt_tokens: 8,
  completion_tokens: 4,
  total_tokens: 12,
  prompt_tokens_details: { cached_tokens: 5 },
  completion_tokens_details: { reasoning_tokens: 0 },
  avg_tok_per_sec: 4,
  avg_prompt_tok_per_sec: 16,
  avg_compl_tok_per_sec: 2,
  total_time_sec: 3,
  total_prompt_time_sec: 0.5,
  total_completion_time_sec: 2,
};

describe("a chat completion", () => {
  it("has one message per choice, and the usage", async () => {
    const refusal: GenerateEvent = { type: "refusal", choice: 1, reason: "no JSON" };
    const events = [text("a"), text("b", 1), refusal, finish("length"), finish("cancelled", 1), done];
    const { id, created, ...rest } = await answered(events, { n: 2, model: "other" });
    assert.match(id, /^chatcmpl-[0-9a-f]{24}$/);
    assert.ok(Math.abs(created - Date.now() / 1000) < 5);
    const message = (content: string, refusal: string | null) => ({ role: "assistant", content, refusal });
    assert.deepEqual(rest, {
      object: "chat.completion",
      model: "other",
      system_fingerprint: "local",
      choices: [
        { index: 0, message: message("a", null), logprobs: null, finish_reason: "length" },
        { index: 1, message: message("b", "no JSON"), logprobs: null, finish_reason: "canceled" },
      ],
      usage: wireUsage,
    });
  });

  it("has calls and reasoning, and null content if there are only calls", async () => {
    const calls = [...toolCall("f", ['{"x"', ":1}"], 0), ...toolCall("g", [], 1)];
    const { choices } = await answered([reasoning("h"), reasoning("m"), ...calls, finish("tool_calls"), done]);
    assert.deepEqual(choices[0], {
      index: 0,
      message: {
        role: "assistant",
        content: null,
        refusal: null,
        tool_calls: [
          { id: "call_0", type: "function", function: { name: "f", arguments: '{"x":1}' } },
          { id: "call_1", type: "function", function: { name: "g", arguments: "" } },
        ],
        reasoning_content: "hm",
      },
      logprobs: null,
      finish_reason: "tool_calls",
    });
    const spoken = await answered([text("ok"), ...toolCall("f", ["{}"]), finish("tool_calls"), done]);
    assert.equal(spoken.choices[0].message.content, "ok");
  });

  it("has a failed call as text", async () => {
    const [begun] = toolCall("f", []);
    const piece: GenerateEvent = { type: "tool_arguments", choice: 0, call: 0, text: '{"x"' };
    const failed: GenerateEvent = { type: "tool_call_failed", choice: 0, call: 0, text: '<call>f {"x"' };
    const { choices } = await answered([text("a "), begun!, piece, failed, finish(), done]);
    assert.deepEqual(choices[0].message, { role: "assistant", content: 'a <call>f {"x"', refusal: null });
  });

  it("has a call that the token limit has cut as a call with the beginning of its arguments", async () => {
    const events = toolCall("f", ['{"x"']).slice(0, -1);
    const cut: GenerateEvent = { type: "tool_call_cut", choice: 0, call: 0 };
    const { choices } = await answered([...events, cut, finish("length"), done]);
    assert.deepEqual(choices[0].message.tool_calls, [
      { id: "call_0", type: "function", function: { name: "f", arguments: '{"x"' } },
    ]);
    assert.deepEqual([choices[0].message.content, choices[0].finish_reason], [null, "length"]);
  });

  it("has empty text for an answer without tokens", async () => {
    const { choices } = await answered([finish("length"), done]);
    assert.equal(choices[0].message.content, "");
  });

  it("has logprobs in OpenAI's shape if requested", async () => {
    const top = { token: "x", bytes: [120], logprob: -Infinity };
    const logprob = { token: "é", bytes: [195, 169], logprob: -0.5, top: [top] };
    const events = [text("é", 0, [logprob]), finish(), done];
    const { choices } = await answered(events, { logprobs: true, top_logprobs: 1 });
    assert.deepEqual(choices[0].logprobs, {
      content: [
        {
          token: "é",
          logprob: -0.5,
          bytes: [195, 169],
          top_logprobs: [{ token: "x", logprob: -9999, bytes: [120] }],
        },
      ],
      refusal: null,
    });
    assert.equal((await answered(events)).choices[0].logprobs, null);
  });

  it("reports the number of reasoning tokens", async () => {
    const answer = await answered([
      text("a"),
      finish(),
      { ...done, usage: { ...usage, reasoningTokens: 3 } } as GenerateEvent,
    ]);
    assert.deepEqual(answer.usage, { ...wireUsage, completion_tokens_details: { reasoning_tokens: 3 } });
  });
});
