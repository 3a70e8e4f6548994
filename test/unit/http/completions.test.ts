import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { done, FakeInference, finish, text } from "../../fixtures/fake-inference.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { request } from "../../fixtures/socketless.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog() });

async function complete(body: object) {
  const reply = await request(app, "POST", "/v1/completions", { body: { prompt: "Once", ...body } });
  assert.equal(reply.status, 200, reply.body);
  return JSON.parse(reply.body);
}

describe("POST /v1/completions", () => {
  it("answers with text, finish reason and usage for each choice", async () => {
    const { id, created, ...rest } = await complete({ n: 2, best_of: 2, max_tokens: 3 });
    assert.match(id, /^cmpl-[0-9a-f]{24}$/);
    assert.ok(Math.abs(created - Date.now() / 1000) < 5);
    assert.deepEqual(rest, {
      object: "text_completion",
      model: "tiny",
      system_fingerprint: "local",
      choices: [0, 1].map((index) => ({ text: "Hello world", index, logprobs: null, finish_reason: "stop" })),
      usage: {
        prompt_tokens: 8,
        completion_tokens: 4,
        total_tokens: 12,
        avg_tok_per_sec: 4,
        avg_prompt_tok_per_sec: 16,
        avg_compl_tok_per_sec: 2,
        total_time_sec: 3,
        total_prompt_time_sec: 0.5,
        total_completion_time_sec: 2,
      },
    });
    const { prompt, maxTokens } = inference.lastRun.request;
    assert.deepEqual({ prompt, maxTokens }, { prompt: { kind: "text", text: "Once" }, maxTokens: 3 });
  });

  it("puts the prompt before the text when asked to echo", async () => {
    const { choices } = await complete({ echo: true });
    assert.equal(choices[0].text, "OnceHello world");
  });

  it("gives logprobs in the older shape, offsets counted in characters", async () => {
    const token = (bytes: number[], logprob: number) => {
      const of = { token: Buffer.from(bytes).toString(), bytes, logprob };
      return { ...of, top: [of] };
    };
    // "é", then the two halves of "ü", then "!".
    const tokens = [token([195, 169], -1), token([195], -2), token([188], -3), token([33], -4)];
    inference.script = () => [[text("éü!", 0, tokens)], [finish("length"), done]];
    const { choices } = await complete({ logprobs: 1 });
    assert.equal(inference.lastRun.request.sampling.topLogprobs, 1);
    assert.deepEqual(choices[0].logprobs.text_offset, [0, 1, 2, 2]);
    assert.deepEqual(choices[0].logprobs.token_logprobs, [-1, -2, -3, -4]);
    assert.deepEqual(choices[0].logprobs.tokens[0], "é");
    assert.deepEqual(choices[0].logprobs.top_logprobs[3], { "!": -4 });
  });
});
