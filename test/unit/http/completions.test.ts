import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { textCompletionSchema } from "../../../http/completions/schemas.ts";
import { done, FakeInference, finish, hello, text } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { recordsOf, type TestLogprob } from "../../fixtures/text/logprobs.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog() });

async function complete(body: object) {
  const reply = await request(app, "POST", "/v1/completions", { body: { prompt: "Once", ...body } });
  assert.equal(reply.status, 200, reply.body);
  const answer = JSON.parse(reply.body);
  textCompletionSchema.parse(answer);
  return answer;
}

describe("POST /v1/completions", () => {
  it("returns text, finish reason and usage for each choice", async () => {
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
        prompt_tokens_details: { cached_tokens: 5 },
        completion_tokens_details: { reasoning_tokens: 0 },
        avg_tok_per_sec: 4,
        avg_prompt_tok_per_sec: 16,
        avg_compl_tok_per_sec: 2,
        total_time_sec: 3,
        total_prompt_time_sec: 0.5,
        total_completion_time_sec: 2,
      },
    });
    const { prompt, maxTokens, tools, series } = inference.lastRun.request;
    const text = { kind: "text", text: "Once" };
    assert.deepEqual({ prompt, maxTokens, tools, series }, { prompt: text, maxTokens: 3, tools: null, series: null });
  });

  it("accepts unsupported fields with values that ask for nothing", async () => {
    await complete({ stream: false, suffix: "", tools: [], tool_choice: "none" });
    await complete({ stream: null, stream_options: null, suffix: null, tools: null, tool_choice: "auto", user: "me" });
  });

  it("puts the prompt before the text with echo", async () => {
    const { choices } = await complete({ echo: true });
    assert.equal(choices[0].text, "OnceHello world");
  });

  it("returns logprobs in the legacy shape with offsets in characters", async () => {
    const token = (bytes: number[], logprob: number) => {
      const of = { token: Buffer.from(bytes).toString(), bytes, logprob };
      return { ...of, top: [of] };
    };
    // The tokens are "é", the two halves of "ü", and "!".
    const tokens = [token([195, 169], -1), token([195], -2), token([188], -3), token([33], -4)];
    inference.script = () => [[text("éü!", 0, tokens)], [finish("length"), done]];
    const { choices } = await complete({ logprobs: 1 });
    assert.equal(inference.lastRun.request.sampling.topLogprobs, 1);
    assert.deepEqual(choices[0].logprobs.text_offset, [0, 1, 2, 2]);
    assert.deepEqual(choices[0].logprobs.token_logprobs, [-1, -2, -3, -4]);
    assert.deepEqual(choices[0].logprobs.tokens[0], "é");
    assert.deepEqual(choices[0].logprobs.top_logprobs[3], { "!": -4 });
  });

  it("generates best_of candidates and returns n", async () => {
    inference.script = hello;
    const { choices } = await complete({ n: 2, best_of: 5, priority: 1000 });
    assert.equal(choices.length, 2);
    const { candidates, priority, sampling } = inference.lastRun.request;
    assert.deepEqual([candidates, priority, sampling.topLogprobs], [5, 1000, null]);
  });

  const wrong: readonly (readonly [object, string, RegExp])[] = [
    [{ n: 3, best_of: 2 }, "best_of", /at least n \(3\), got 2/],
    [{ best_of: 65 }, "best_of", /at most 64/],
    [{ logprobs: 6 }, "logprobs", /at most 5/],
    [{ max_tokens: -1, echo: true }, "max_tokens", /at least 0/],
    [{ priority: 1001 }, "priority", /at most 1000/],
    [{ priority: 0.5 }, "priority", /integer/],
    [{ stream: true }, "stream", /do not stream/],
    [{ tools: [{}] }, "tools", /this endpoint has no tool calls/],
    [{ tool_choice: "required" }, "tool_choice", /this endpoint has no tool calls/],
    [{ prompt: { text: "a" } }, "prompt", /a string, an array of strings/],
    [{ max_token: 4 }, "max_token", /did you mean "max_tokens"/],
  ];
  for (const [body, param, message] of wrong) {
    it(`refuses ${JSON.stringify(body)}`, async () => {
      const reply = await request(app, "POST", "/v1/completions", { body: { prompt: "Once", ...body } });
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.param], [400, param]);
      assert.match(error.message, message);
    });
  }

  it("has a refusal only if the text does not match the grammar", async () => {
    const refusal = { type: "refusal", choice: 1, reason: "too short" } as const;
    inference.script = () => [[text("a"), finish(), text("b", 1), refusal, finish("stop", 1), done]];
    const { choices } = await complete({ n: 2 });
    assert.ok(!("refusal" in choices[0]));
    assert.deepEqual([choices[1].text, choices[1].refusal, choices[1].finish_reason], ["b", "too short", "stop"]);
  });
});

describe("an echo with logprobs", () => {
  const tokenOf = (piece: string, logprob: number) => ({
    token: piece,
    bytes: [...Buffer.from(piece)],
    logprob,
    top: [],
  });
  const promptOf = (pieces: readonly string[]): TestLogprob[] => pieces.map((piece, i) => tokenOf(piece, -i));

  async function echoed(prompt: string, pieces: readonly TestLogprob[], body: object = {}) {
    inference.script = () => [
      [{ type: "prompt", logprobs: recordsOf(pieces) }],
      [text("xy", 0, [tokenOf("x", -7), tokenOf("y", -8)]), finish("length"), done],
    ];
    const { choices } = await complete({ prompt, echo: true, logprobs: 2, ...body });
    return choices[0];
  }

  it("has the prompt's tokens, the first without a logprob, then the completion's", async () => {
    const choice = await echoed("Ça va", promptOf(["Ç", "a", " va"]));
    assert.equal(inference.lastRun.request.promptLogprobs, 2);
    assert.equal(choice.text, "Ça vaxy");
    assert.deepEqual(choice.logprobs, {
      tokens: ["Ç", "a", " va", "x", "y"],
      token_logprobs: [null, -1, -2, -7, -8],
      top_logprobs: [null, { a: -1 }, { " va": -2 }, { x: -7 }, { y: -8 }],
      text_offset: [0, 1, 2, 5, 6],
    });
  });

  it("counts offsets in the sent prompt despite an added space or a truncated start", async () => {
    const spaced = await echoed("ab", [{ ...tokenOf("<s>", 0), bytes: [] }, tokenOf(" ab", -1)]);
    assert.deepEqual(spaced.logprobs.text_offset, [0, 0, 2, 3]);
    const cut = await echoed("one two", promptOf(["e", " two"]), { truncate_sequence: true });
    assert.deepEqual(cut.logprobs.text_offset, [2, 3, 7, 8]);
  });

  it("requests no prompt logprobs without echo or without logprobs", async () => {
    inference.script = hello;
    await complete({ logprobs: 2 });
    assert.equal(inference.lastRun.request.promptLogprobs, null);
    const { choices } = await complete({ echo: true });
    assert.equal(inference.lastRun.request.promptLogprobs, null);
    assert.equal(choices[0].logprobs, null);
  });

  it("adds the chosen token to the alternatives", async () => {
    const chosen = { ...tokenOf("x", -3), top: [tokenOf("z", -0.125)] };
    inference.script = () => [[text("x", 0, [chosen]), finish("length"), done]];
    const { choices } = await complete({ logprobs: 1 });
    assert.deepEqual(choices[0].logprobs.top_logprobs, [{ z: -0.125, x: -3 }]);
  });

  it("tells tokens apart that are parts of a character", async () => {
    const part = (bytes: number[], logprob: number) => ({ token: Buffer.from(bytes).toString(), bytes, logprob });
    // The beginnings of "ü" and "я"; the second is the likelier one. Then U+FFFD itself.
    const chosen = { ...part([32, 0xc3], -3), top: [part([32, 0xd1], -0.125)] };
    const whole = { ...part([0xef, 0xbf, 0xbd], -1), top: [] };
    inference.script = () => [[text("?", 0, [chosen, whole]), finish("length"), done]];
    const { choices } = await complete({ logprobs: 1 });
    assert.deepEqual(choices[0].logprobs.tokens, ["bytes:\\x20\\xc3", "\ufffd"]);
    assert.deepEqual(choices[0].logprobs.top_logprobs, [
      { "bytes:\\x20\\xd1": -0.125, "bytes:\\x20\\xc3": -3 },
      { "\ufffd": -1 },
    ]);
  });
});
