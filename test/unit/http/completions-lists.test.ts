// Text completions for several prompts, for token prompts, with a suffix, and streamed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { completionChunkSchema, textCompletionSchema } from "../../../http/completions/schemas.ts";
import type { ExchangeObserver } from "../../../http/exchange.ts";
import { PROMPTS_AT_ONCE } from "../../../http/shared/generate-all.ts";
import { done, FakeInference, failure, finish, hello, text } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { recordsOf } from "../../fixtures/text/logprobs.ts";

function rig(allowCompletionsStream = true, observer?: ExchangeObserver) {
  const inference = new FakeInference();
  const observers = observer === undefined ? [] : [observer];
  const app = createApp({ inference, log: recordingLog(), observers, config: { allowCompletionsStream } });
  const send = (body: object) => request(app, "POST", "/v1/completions", { body });
  const complete = async (body: object) => {
    const reply = await send(body);
    assert.equal(reply.status, 200, reply.body);
    return textCompletionSchema.parse(JSON.parse(reply.body));
  };
  const stream = async (body: object) => {
    const reply = await send({ stream: true, ...body });
    assert.equal(reply.status, 200, reply.body);
    const data = reply.body.split("\n\n").filter((line) => line !== "");
    assert.equal(data.pop(), "data: [DONE]");
    return data.map((line) => JSON.parse(line.replace(/^data: /, "")));
  };
  const refused = async (body: object) => {
    const reply = await send(body);
    const { error } = JSON.parse(reply.body);
    assert.ok(reply.status >= 400 && reply.status < 500, reply.body);
    return [error.param, error.message] as const;
  };
  return { inference, complete, stream, refused };
}

/** Script that outputs, for each choice, the prompt and the number of the choice. */
const echoing: FakeInference["script"] = ({ prompt, choices }) => {
  const name = prompt.kind === "text" ? prompt.text : prompt.kind === "tokens" ? `[${prompt.tokens.join()}]` : "sealed";
  const all = Array.from({ length: choices }, (_, choice) => choice);
  return [
    all.map((choice) => text(`${name}${choice}`, choice)),
    [...all.map((choice) => finish("stop", choice)), done],
  ];
};

describe("POST /v1/completions with several prompts", () => {
  it("numbers the choices of prompt p from p * n, and adds the usage", async () => {
    const { inference, complete } = rig();
    inference.script = echoing;
    const { choices, usage } = await complete({ prompt: ["a", "b", "c"], n: 2 });
    assert.deepEqual(
      choices.map(({ text, index }) => [text, index]),
      ["a0", "a1", "b0", "b1", "c0", "c1"].map((text, index) => [text, index]),
    );
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [24, 12]);
  });

  it("takes tokens of one prompt, and lists of tokens", async () => {
    const { inference, complete } = rig();
    inference.script = echoing;
    assert.deepEqual(
      (await complete({ prompt: [5, 6] })).choices.map(({ text }) => text),
      ["[5,6]0"],
    );
    assert.deepEqual(
      (await complete({ prompt: [[5], [6, 7]] })).choices.map(({ text }) => text),
      ["[5]0", "[6,7]0"],
    );
    assert.equal(inference.runs.length, 3);
  });

  it("echoes each prompt before its own choices, tokens as text", async () => {
    const { inference, complete } = rig();
    const { choices } = await complete({ prompt: ["one ", "two "], echo: true });
    assert.deepEqual(
      choices.map(({ text }) => text),
      ["one Hello world", "two Hello world"],
    );
    const records = recordsOf(
      [..."xy"].map((token) => ({ token, bytes: [...Buffer.from(token)], logprob: 0, top: [] })),
    );
    const tokens = [records.floats[0]!, records.floats[3]!];
    assert.equal((await complete({ prompt: tokens, echo: true })).choices[0]?.text, "xyHello world");
    assert.equal(inference.runs.length, 3);
  });

  it("processes a few of them at a time, and counts them as one request", async () => {
    const ended: (number | null | undefined)[] = [];
    const { inference, complete } = rig(true, {
      ended: ({ generation }) => ended.push(generation?.usage?.promptTokens, generation?.finishReasons.length),
    });
    let running = 0;
    let most = 0;
    inference.script = function* () {
      most = Math.max(most, ++running);
      yield { waitMs: 5 };
      running--;
      yield [text("x"), finish(), done];
    };
    const prompt = Array.from({ length: 2 * PROMPTS_AT_ONCE + 1 }, (_, i) => `p${i}`);
    assert.equal((await complete({ prompt })).choices.length, prompt.length);
    assert.equal(most, PROMPTS_AT_ONCE);
    // The server ends the HTTP exchange a moment after it has sent the response.
    await new Promise(setImmediate);
    assert.deepEqual(ended, [8 * prompt.length, prompt.length]);
  });

  it("fails as a whole with the first error, and cancels the others", async () => {
    for (const stream of [false, true]) {
      const { inference, refused } = rig();
      inference.script = function* ({ prompt }) {
        if (prompt.kind === "text" && prompt.text === "bad") yield [failure("queue_full")];
        else {
          yield { waitMs: 60_000 };
          yield [text("x"), finish(), done];
        }
      };
      const [, message] = await refused({ prompt: ["good", "bad"], stream });
      assert.match(message, /scripted queue_full/);
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(inference.runs[0]?.state, "cancelled");
    }
  });

  it("ends all generations when several fail at the same time", async () => {
    for (const stream of [false, true]) {
      const { inference, refused } = rig();
      inference.script = () => [[failure("queue_full")]];
      const prompt = Array.from({ length: PROMPTS_AT_ONCE + 1 }, (_, i) => `p${i}`);
      const [, message] = await refused({ prompt, stream });
      assert.match(message, /scripted queue_full/);
      await new Promise(setImmediate);
      // The first failure ends the request. A generation that stays "running" would keep its model loaded forever.
      assert.deepEqual(
        inference.runs.map(({ state }) => state === "running"),
        Array(PROMPTS_AT_ONCE).fill(false),
      );
    }
  });

  it("accepts a long list, which a text worker reads", async () => {
    const { inference, complete } = rig();
    inference.script = hello;
    const long = "x".repeat(70_000);
    const { choices } = await complete({ prompt: [long, "b"], echo: true });
    assert.deepEqual(
      choices.map(({ text }) => text.length),
      [70_011, 12],
    );
    assert.deepEqual(
      inference.runs.map((run) => run.request.prompt.kind),
      ["sealed", "sealed"],
    );
  });

  it("refuses lists that are mixed, empty or too long, and suffixes that cannot be used", async () => {
    const { refused } = rig();
    const wrong: readonly (readonly [object, string, RegExp])[] = [
      [{ prompt: [] }, "prompt", /not empty/],
      [{ prompt: ["a", 1] }, "prompt", /some of each/],
      [{ prompt: [[1], "a"] }, "prompt", /some of each/],
      [{ prompt: [-1] }, "prompt", /./],
      [{ prompt: [[]] }, "prompt", /./],
      [{ prompt: Array(129).fill("a") }, "prompt", /at most 128 prompts, got 129/],
      [{ prompt: Array(128).fill("a"), n: 5 }, "prompt", /at most 512 completions/],
      [{ prompt: [1], suffix: "b" }, "suffix", /as text/],
      [{ prompt: "a", suffix: "b", echo: true }, "suffix", /echo/],
      [{ prompt: "a", best_of: 2, stream: true }, "best_of", /stream/],
    ];
    for (const [body, param, message] of wrong) {
      const [field, words] = await refused(body);
      assert.ok(field.startsWith(param), `${JSON.stringify(body)}: ${field}`);
      assert.match(words, message);
    }
  });
});

describe("POST /v1/completions with a stream", () => {
  it("is refused by default, naming the setting", async () => {
    const { refused } = rig(false);
    const [param, message] = await refused({ prompt: "Once", stream: true });
    assert.equal(param, "stream");
    assert.match(message, /--allow-completions-stream/);
  });

  it("sends chunks, and the usage on the last or in an extra chunk", async () => {
    const { stream } = rig();
    const chunks = await stream({ prompt: "Once" });
    for (const chunk of chunks) completionChunkSchema.parse(chunk);
    assert.deepEqual(
      chunks.map(({ choices: [choice] }) => [choice.text, choice.finish_reason]),
      [
        ["Hello", null],
        [" world", null],
        ["", "stop"],
      ],
    );
    assert.deepEqual(
      chunks.map(({ usage }) => usage?.total_tokens),
      [undefined, undefined, 12],
    );
    const more = await stream({ prompt: "Once", stream_options: { include_usage: true } });
    for (const chunk of more) completionChunkSchema.parse(chunk);
    assert.deepEqual(
      more.map(({ choices, usage }) => [choices.length, usage?.total_tokens]),
      [
        [1, undefined],
        [1, undefined],
        [1, undefined],
        [0, 12],
      ],
    );
  });

  it("has all choices of all prompts, and the sum of their usage", async () => {
    const { inference, stream } = rig();
    inference.script = echoing;
    const chunks = await stream({ prompt: ["a", "b"], n: 2, echo: true });
    const texts = ["", "", "", ""];
    for (const { choices } of chunks) for (const { index, text } of choices) texts[index] += text;
    assert.deepEqual(texts, ["aa0", "aa1", "bb0", "bb1"]);
    assert.equal(chunks.at(-1).usage.prompt_tokens, 16);
  });

  it("has the logprobs of a body, with the same offsets", async () => {
    const { inference, stream, complete } = rig();
    const token = (token: string, logprob: number) => ({ token, bytes: [...Buffer.from(token)], logprob, top: [] });
    inference.script = () => [
      [{ type: "prompt", logprobs: recordsOf([token("Ç", 0), token("a", -1)]) }],
      [text("x", 0, [token("x", -2)])],
      [text("yz", 0, [token("y", -3), token("z", -4)])],
      [finish("length"), done],
    ];
    const body = { prompt: "Ça", echo: true, logprobs: 1 };
    const whole = (await complete(body)).choices[0]?.logprobs;
    const parts = (await stream(body)).flatMap(({ choices }) => choices[0].logprobs ?? []);
    assert.equal(parts.length, 3);
    for (const key of ["tokens", "token_logprobs", "top_logprobs", "text_offset"] as const) {
      assert.deepEqual(
        parts.flatMap((part) => part[key]),
        whole?.[key],
      );
    }
  });

  it("ends with an error event after the first chunk", async () => {
    const { inference, stream } = rig();
    inference.script = () => [[text("a")], [failure("model_failed")]];
    const chunks = await stream({ prompt: "Once" });
    assert.deepEqual([chunks[0].choices[0].text, chunks[1].error.code], ["a", "model_failed"]);
  });
});
