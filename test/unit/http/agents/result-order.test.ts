// Order of parallel tool results: a client may send them in any order; the prompt has them in the order of the
// calls.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ChatMessage } from "../../../../engines/generation.ts";
import { createApp } from "../../../../http/app.ts";
import { resultsInCallOrder } from "../../../../http/shared/fields/tools/result-order.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const names = ["slow", "quick"] as const;
const calls = names.map((name) => ({ id: name, type: "function", function: { name, arguments: "{}" } }));
const quickFirst = [...names].reverse();

const bodies = {
  "/v1/chat/completions": {
    messages: [
      { role: "user", content: "Go." },
      { role: "assistant", tool_calls: calls },
      ...quickFirst.map((id) => ({ role: "tool", tool_call_id: id, content: `${id} result` })),
      { role: "user", content: "And?" },
    ],
  },
  "/v1/messages": {
    max_tokens: 9,
    messages: [
      { role: "user", content: "Go." },
      { role: "assistant", content: names.map((name) => ({ type: "tool_use", id: name, name, input: {} })) },
      {
        role: "user",
        content: [
          ...quickFirst.map((id) => ({ type: "tool_result", tool_use_id: id, content: `${id} result` })),
          { type: "text", text: "And?" },
        ],
      },
    ],
  },
  "/v1/responses": {
    input: [
      { role: "user", content: "Go." },
      ...names.map((name) => ({ type: "function_call", call_id: name, name, arguments: "{}" })),
      ...quickFirst.map((id) => ({ type: "function_call_output", call_id: id, output: `${id} result` })),
      { role: "user", content: "And?" },
    ],
  },
  "/api/chat": {
    stream: false,
    messages: [
      { role: "user", content: "Go." },
      { role: "assistant", tool_calls: names.map((name) => ({ function: { name, arguments: {} } })) },
      ...quickFirst.map((name) => ({ role: "tool", tool_name: name, content: `${name} result` })),
      { role: "user", content: "And?" },
    ],
  },
};

describe("results of parallel tool calls", () => {
  for (const [path, body] of Object.entries(bodies)) {
    it(`are in the order of the calls in ${path}`, async () => {
      const inference = new FakeInference();
      const app = createApp({ inference, log: recordingLog() });
      const reply = await request(app, "POST", path, { body });
      assert.equal(reply.status, 200, reply.body);
      const { prompt } = inference.lastRun.request;
      assert.equal(prompt.kind, "chat");
      assert.deepEqual(
        prompt.messages.map(({ content }) => content),
        ["Go.", "", "slow result", "quick result", "And?"],
      );
    });
  }

  it("are sorted in a time that grows with their number, in one message and in many", () => {
    const count = 24_000;
    const of = (ids: readonly string[]): readonly ChatMessage[] => [
      { role: "assistant", content: "", toolCalls: ids.map((id) => ({ id, name: "f", arguments: "{}" })) },
      ...ids.toReversed().map((toolCallId) => ({ role: "tool", content: "", toolCallId })),
    ];
    const ids = Array.from({ length: count }, (_, i) => `call_${i}`);
    const many = ids.flatMap((id) => of([id, `${id} too`]));
    const before = process.cpuUsage();
    const ordered = resultsInCallOrder(of(ids)).slice(1);
    assert.deepEqual(
      ordered.map(({ toolCallId }) => toolCallId),
      ids,
    );
    assert.equal(resultsInCallOrder(many)[1]?.toolCallId, "call_0");
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 3e6, `${(user + system) / 1e6} s`);
  });
});
