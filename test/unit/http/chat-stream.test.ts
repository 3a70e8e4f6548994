import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { GenerateEvent } from "../../../engines/chat.ts";
import { ChatStream } from "../../../http/chat/stream.ts";
import { done, failure, finish, text } from "../../fixtures/fake-inference.ts";

const head = { id: "chatcmpl-1", created: 5, model: "m" };

/** The data of each server-sent event of a stream. */
function stream(events: readonly GenerateEvent[], choices = 1, includeUsage = false) {
  const codec = new ChatStream(head, choices, includeUsage);
  const out = events.map((event) => codec.encode([event])).join("");
  assert.ok(out.endsWith("\n\n"));
  const data = out
    .slice(0, -2)
    .split("\n\n")
    .map((event) => event.replace(/^data: /, ""));
  assert.equal(data.pop(), "[DONE]");
  assert.ok(codec.isEnded);
  return data.map((json) => JSON.parse(json));
}

describe("a streamed chat completion", () => {
  it("gives each choice its role once, and the usage to the last finish of all", () => {
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

  it("with include_usage ends in a chunk without choices, and says usage null before", () => {
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

  it("gives a choice that ends without text its role", () => {
    const [chunk] = stream([finish("cancelled"), done]);
    assert.deepEqual(chunk.choices[0], {
      index: 0,
      delta: { role: "assistant", content: "" },
      logprobs: null,
      finish_reason: "canceled",
    });
  });

  it("carries a refusal in OpenAI's field, beside the text that was refused", () => {
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

  it("closes the finish it holds back before an error", () => {
    const chunks = stream([text("a"), finish(), failure("internal", "oops")]);
    assert.equal(chunks[1].choices[0].finish_reason, "stop");
    assert.deepEqual(chunks[2], {
      error: { message: "oops", type: "server_error", param: null, code: "internal" },
    });
  });

  it("writes logprobs in OpenAI's shape, and never as null", () => {
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

  it("carries any text through unchanged, whatever the batches", () => {
    fc.assert(
      fc.property(fc.array(fc.array(fc.string({ unit: "binary" }), { maxLength: 4 }), { maxLength: 6 }), (batches) => {
        const codec = new ChatStream(head, 1, false);
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
