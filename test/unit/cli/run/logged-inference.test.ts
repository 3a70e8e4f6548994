import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LoggedInference } from "../../../../cli/run/logged-inference.ts";
import { type GenerateRequest, greedySampling, requestDefaults } from "../../../../engines/generation.ts";
import {
  done,
  FakeInference,
  failure,
  finish,
  type Script,
  text,
  usage,
} from "../../../fixtures/fakes/fake-inference.ts";

const request: GenerateRequest = {
  ...requestDefaults,
  model: "tiny",
  client: "run",
  prompt: { kind: "chat", messages: [{ role: "user", content: "hi" }], templateArguments: {} },
  sampling: greedySampling,
};

async function logged(script: Script, signal = new AbortController().signal, most = Number.POSITIVE_INFINITY) {
  const lines: string[] = [];
  const inference = new LoggedInference(new FakeInference(script), { append: (line) => lines.push(line) });
  let batches = 0;
  for await (const _ of inference.generate(request, signal)) if (++batches >= most) break;
  assert.equal(lines.length, 1);
  return JSON.parse(lines[0]!);
}

describe("the request log of a conversation", () => {
  it("has the question and the whole answer", async () => {
    const entry = await logged(() => [[text("Hello")], [text(" world"), finish("length")], [done]]);
    const { time, durationMs, ...rest } = entry;
    assert.ok(Math.abs(Date.parse(time) - Date.now()) < 10_000 && durationMs >= 0);
    assert.deepEqual(rest, {
      model: "tiny",
      request: { adapter: null, prompt: request.prompt, sampling: greedySampling },
      response: { text: "Hello world", reasoning: "", finishReason: "length", usage, error: null },
    });
  });

  it("has the outcome of each answer, not of those before it", async () => {
    const lines: string[] = [];
    const scripts: Script[] = [
      () => [[text("Hel")], [failure("model_failed", "it died")]],
      () => [[text("one"), finish("length")], [done]],
      () => [[text("two"), finish("stop")], [done]],
    ];
    const inner = new FakeInference((...given) => (scripts.shift() as Script)(...given));
    const inference = new LoggedInference(inner, { append: (line) => lines.push(line) });
    for (let i = 0; i < 3; i++) for await (const _ of inference.generate(request, new AbortController().signal));
    const responses = lines.map((line) => JSON.parse(line).response);
    assert.deepEqual(
      responses.map(({ finishReason, usage, error }) => [finishReason, usage?.completionTokens, error?.code]),
      [
        [null, undefined, "model_failed"],
        ["length", usage.completionTokens, undefined],
        ["stop", usage.completionTokens, undefined],
      ],
    );
  });

  it("has the calls of tools", async () => {
    const call = { choice: 0, call: 0 };
    const entry = await logged(() => [
      [{ type: "tool_call", ...call, id: "call_1", name: "shell" }],
      [{ type: "tool_arguments", ...call, text: '{"commands":' }],
      [{ type: "tool_arguments", ...call, text: '["ls"]}' }, { type: "tool_call_end", ...call }, finish("tool_calls")],
      [done],
    ]);
    assert.deepEqual(entry.response.toolCalls, [{ name: "shell", arguments: '{"commands":["ls"]}' }]);
  });

  it("has what was said before an answer failed or was interrupted", async () => {
    const failed = await logged(() => [[text("Hel")], [failure("model_failed", "it died")]]);
    assert.deepEqual([failed.response.text, failed.response.error.message], ["Hel", "it died"]);
    const left = await logged(() => [[text("Hel")], [text("lo"), finish()], [done]], undefined, 1);
    assert.deepEqual([left.response.text, left.response.usage, left.response.finishReason], ["Hel", null, null]);
  });
});
