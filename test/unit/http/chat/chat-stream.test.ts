import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { chatChunkSchema } from "../../../../http/chat/schemas.ts";
import { ChatStream } from "../../../../http/chat/stream.ts";
import { done, failure, finish, reasoning, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { testTokens } from "../../../fixtures/text/logprobs.ts";
import { wholeText } from "../../../fixtures/text/pieces.ts";

const head = { id: "chatcmpl-1", created: 5, model: "m" };

function createStream(choiceCount = 1, includeUsage = false): ChatStream {
  return new ChatStream(head, { choiceCount, includeUsage, hasExtensions: true, texts: () => testTokens });
}

/** Returns the data of each server-sent event of a stream. Asserts that chunks match the schema of the API document. */
function stream(events: readonly GenerateEvent[], choices = 1, includeUsage = false) {
  const codec = createStream(choices, includeUsage);
  const out = events.map((event) => wholeText(codec.encode([event]))).join("");
  assert.ok(out.endsWith("\n\n"));
  const data = out
    .slice(0, -2)
    .split("\n\n")
    .map((event) => event.replace(/^data: /, ""));
  assert.equal(data.pop(), "[DONE]");
  assert.ok(codec.isEnded);
  const chunks = data.map((json) => JSON.parse(json));
  for (const chunk of chunks) if (!("error" in chunk)) chatChunkSchema.parse(chunk);
  return chunks;
}

describe("a streamed chat completion", () => {
  it("sends the role once per choice, and the usage on the last finish", () => {
    const chunks = stream(
      [text("a", 0), text("b", 1), text("c", 0), finish("stop", 1), text("d", 0), finish("length", 0), done],
      2,
    );
    assert.deepEqual(
      chunks.map(({ choices: [choice] }) => [choice.index, choice.delta, choice.finish_reason]),
      [
        [0, { role: "assistant", content: "a" }, null],
        [1, { role: "assistant", content: "b" }, null],
        [0, { content: "c" }, null],
        [1, {}, "stop"],
        [0, { content: "d" }, null],
        [0, {}, "length"],
      ],
    );
    assert.deepEqual(
      chunks.map((chunk) => chunk.usage?.total_tokens),
      [undefined, undefined, undefined, undefined, undefined, 12],
    );
  });

  it("ends with a chunk without choices with include_usage, and has null usage before", () => {
    const chunks = stream([text("a"), finish(), done], 1, true);
    assert.deepEqual(
      chunks.map(({ choices, usage }) => [choices.length, usage?.prompt_tokens ?? usage]),
      [
        [1, null],
        [1, null],
        [0, 8],
      ],
    );
  });

  it("has one usage field per chunk", () => {
    const codec = createStream(1, true);
    const lines = wholeText(codec.encode([text("a"), finish(), done])).split("\n\n");
    for (const line of lines.filter((one) => one.startsWith("data: {")))
      assert.equal(line.split('"usage":').length, 2, line);
  });

  it("sends the role of a choice that ends without text", () => {
    const [chunk] = stream([finish("cancelled"), done]);
    assert.deepEqual(chunk.choices[0], {
      index: 0,
      delta: { role: "assistant", content: "" },
      logprobs: null,
      finish_reason: "canceled",
    });
  });

  it("sends a refusal in OpenAI's field, beside the refused text", () => {
    const refusal = (choice: number) => ({ type: "refusal", choice, reason: 'not "it"' }) as const;
    const chunks = stream([text("a"), refusal(0), finish(), refusal(1), finish("stop", 1), done], 2);
    assert.deepEqual(
      chunks.map(({ choices: [choice] }) => [choice.delta, choice.finish_reason]),
      [
        [{ role: "assistant", content: "a" }, null],
        [{ refusal: 'not "it"' }, null],
        [{}, "stop"],
        [{ role: "assistant", refusal: 'not "it"' }, null],
        [{}, "stop"],
      ],
    );
  });

  it("sends calls in pieces, after reasoning and text", () => {
    const begin: GenerateEvent = { type: "begin", promptTokens: 8, cachedTokens: 5 };
    const calls = [...toolCall("get", ['{"x"', ': "é"}'], 0), ...toolCall("put", ["{}"], 1)];
    const events = [begin, reasoning("h"), reasoning("m"), text("ok"), ...calls, finish("tool_calls"), done];
    const call = (index: number, args: string) => ({ tool_calls: [{ index, function: { arguments: args } }] });
    const newCall = (index: number, name: string) => {
      return { tool_calls: [{ index, id: `call_${index}`, type: "function", function: { name, arguments: "" } }] };
    };
    assert.deepEqual(
      stream(events).map(({ choices: [choice] }) => [choice.delta, choice.finish_reason]),
      [
        [{ role: "assistant", reasoning_content: "h" }, null],
        [{ reasoning_content: "m" }, null],
        [{ content: "ok" }, null],
        [newCall(0, "get"), null],
        [call(0, '{"x"'), null],
        [call(0, ': "é"}'), null],
        [newCall(1, "put"), null],
        [call(1, "{}"), null],
        [{}, "tool_calls"],
      ],
    );
  });

  it("sends the role with a first call, and keeps the calls of choices apart", () => {
    const events = [...toolCall("f", ["1"], 0, 1), ...toolCall("g", ["2"], 0, 0)];
    const deltas = stream([...events, finish("tool_calls", 1), finish("tool_calls"), done], 2).map(
      ({ choices: [{ index, delta }] }) => [index, delta.role, delta.tool_calls?.[0].function],
    );
    assert.deepEqual(deltas, [
      [1, "assistant", { name: "f", arguments: "" }],
      [1, undefined, { arguments: "1" }],
      [0, "assistant", { name: "g", arguments: "" }],
      [0, undefined, { arguments: "2" }],
      [1, undefined, undefined],
      [0, undefined, undefined],
    ]);
  });

  it("does not repeat a failed call as text", () => {
    const [begun, piece] = toolCall("f", ['{"x"']);
    const failed: GenerateEvent = { type: "tool_call_failed", choice: 0, call: 0, text: '<call>f {"x"' };
    const chunks = stream([begun!, piece!, failed, finish("length"), done]);
    assert.equal(chunks.length, 3);
    assert.deepEqual(chunks.at(-1).choices[0], { index: 0, delta: {}, logprobs: null, finish_reason: "length" });
  });

  it("matches the expected bytes", () => {
    const codec = createStream();
    const events = [reasoning("\n"), text('"'), ...toolCall("f", ["{}"]), finish("tool_calls"), done];
    const before =
      'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m","system_fingerprint":"local","choices":[{"index":0,"delta":{';
    const rest = '},"logprobs":null,"finish_reason":null}]}\n\n';
    const usage =
      '{"prompt_tokens":8,"completion_tokens":4,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":0},"avg_tok_per_sec":4,"avg_prompt_tok_per_sec":16,"avg_compl_tok_per_sec":2,"total_time_sec":3,"total_prompt_time_sec":0.5,"total_completion_time_sec":2}';
    assert.equal(
      codec.encode(events),
      [
        `${before}"role":"assistant","reasoning_content":"\\n"${rest}`,
        `${before}"content":"\\""${rest}`,
        `${before}"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"f","arguments":""}}]${rest}`,
        `${before}"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]${rest}`,
        `${before}},"logprobs":null,"finish_reason":"tool_calls"}],"usage":${usage}}\n\n`,
        "data: [DONE]\n\n",
      ].join(""),
    );
  });

  it("sends the held-back finish before an error", () => {
    const chunks = stream([text("a"), finish(), failure("internal", "oops")]);
    assert.equal(chunks[1].choices[0].finish_reason, "stop");
    assert.deepEqual(chunks[2], {
      error: { message: "oops", type: "server_error", param: null, code: "internal" },
    });
  });

  it("sends logprobs in OpenAI's shape, never null", () => {
    const logprob = {
      token: "é",
      bytes: [195, 169],
      logprob: -0.5,
      top: [{ token: "x", bytes: [120], logprob: -Infinity }],
    };
    const [chunk] = stream([text("é", 0, [logprob]), finish(), done]);
    assert.deepEqual(chunk.choices[0].logprobs, {
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
  });

  it("keeps any text unchanged for any batching", () => {
    fc.assert(
      fc.property(fc.array(fc.array(fc.string({ unit: "binary" }), { maxLength: 4 }), { maxLength: 6 }), (batches) => {
        const codec = createStream();
        const out = [...batches.map((batch) => batch.map((piece) => text(piece))), [finish(), done]]
          .map((batch) => codec.encode(batch))
          .join("");
        const lines = out.split("\n").filter((line) => line !== "");
        assert.ok(lines.every((line) => line.startsWith("data: ")));
        const chunks = lines.slice(0, -1).map((line) => JSON.parse(line.slice(6)));
        assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), batches.flat().join(""));
      }),
    );
  });
});
