import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import {
  done,
  FakeInference,
  finish,
  hello,
  reasoning,
  text,
  toolCall,
} from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });

const send = (messages: unknown) => request(app, "POST", "/v1/chat/completions", { body: { messages } });

/** Translates the messages of a request. Returns the conversation. */
async function conversation(messages: unknown) {
  const reply = await send(messages);
  assert.equal(reply.status, 200, reply.body);
  const { prompt } = inference.lastRun.request;
  return prompt.kind === "chat" && prompt.messages;
}

const call = (id: string, name = "f", args = "{}") => ({ id, type: "function", function: { name, arguments: args } });
const asks = { role: "user", content: "hi" };
const calls = { role: "assistant", content: null, tool_calls: [call("a"), call("b")] };

describe("chat messages", () => {
  it("are translated to role and text from string content and from parts", async () => {
    const parts = [
      { type: "text", text: "a" },
      { type: "text", text: "b" },
    ];
    const messages = [
      { role: "developer", content: "be brief" },
      { role: "system", content: parts },
      { role: "user", content: parts, name: "Ann" },
      { role: "assistant", content: null },
      { role: "assistant", content: [...parts, { type: "refusal", refusal: "no" }] },
    ];
    assert.deepEqual(await conversation(messages), [
      { role: "system", content: "be brief" },
      { role: "system", content: "a\nb" },
      { role: "user", content: "a\nb", name: "Ann" },
      { role: "assistant", content: "" },
      { role: "assistant", content: "a\nb\nno" },
    ]);
  });

  it("keep calls in order, and put the results into their order", async () => {
    const messages = [
      asks,
      { role: "assistant", content: "wait", tool_calls: [call("a", "f", '{"x": 1}'), call("b", "g")] },
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: "2" }], name: "g" },
      { role: "tool", tool_call_id: "a", content: "1" },
      { role: "assistant", tool_calls: [{ ...call(""), id: null, index: 0 }] },
    ];
    assert.deepEqual(await conversation(messages), [
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: "wait",
        toolCalls: [
          { id: "a", name: "f", arguments: '{"x": 1}' },
          { id: "b", name: "g", arguments: "{}" },
        ],
      },
      { role: "tool", content: "1", toolCallId: "a" },
      { role: "tool", content: "2", name: "g", toolCallId: "b" },
      { role: "assistant", content: "", toolCalls: [{ id: "", name: "f", arguments: "{}" }] },
    ]);
  });

  it("keep the reasoning under either name", async () => {
    const thought = [{ role: "assistant", content: "x", reasoning: "hm" }];
    for (const fields of [
      { reasoning_content: "hm" },
      { reasoning: "hm" },
      { reasoning_content: "hm", reasoning: "hm" },
    ]) {
      assert.deepEqual(await conversation([{ role: "assistant", content: "x", ...fields }]), thought);
    }
    const nothing = { role: "assistant", content: "x", reasoning_content: "", reasoning: null };
    assert.deepEqual(await conversation([nothing]), [{ role: "assistant", content: "x" }]);
  });

  it("accept an assistant message as returned, with the fields that client libraries add", async () => {
    inference.script = () => [
      [reasoning("hm"), text("Hello"), ...toolCall("f", ['{"x"', ":1}"]), finish("tool_calls"), done],
    ];
    const { message } = JSON.parse((await send("hi")).body).choices[0];
    const [parsed] = message.tool_calls;
    parsed.function.parsed_arguments = { x: 1 };
    inference.script = hello;
    const cited = {
      type: "url_citation",
      url_citation: { url: "http://a.b", title: "A", start_index: 0, end_index: 5 },
    };
    const added = { parsed: null, audio: null, function_call: null, annotations: [cited], refusal: "not JSON" };
    const echoed = { ...message, ...added };
    assert.deepEqual(await conversation([asks, echoed, { role: "tool", tool_call_id: "call_0", content: "" }]), [
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: "Hello",
        reasoning: "hm",
        toolCalls: [{ id: "call_0", name: "f", arguments: '{"x":1}' }],
      },
      { role: "tool", content: "", toolCallId: "call_0" },
    ]);
  });

  const part = (value: object) => [asks, { role: "user", content: [{ type: "text", text: "see" }, value] }];
  const said = (fields: object) => [asks, { role: "assistant", content: "x", ...fields }];
  const refused: readonly (readonly [string, unknown, string, RegExp, string?])[] = [
    [
      "an image that is no URL",
      part({ type: "image_url", image_url: { url: "x" } }),
      "messages[1].content[1].image_url.url",
      /data URL/,
    ],
    [
      "audio that is no base64",
      part({ type: "input_audio", input_audio: { data: "?" } }),
      "messages[1].content[1].input_audio.data",
      /base64/,
    ],
    [
      "a video that is no URL",
      part({ type: "video_url", video_url: { url: "x" } }),
      "messages[1].content[1].video_url.url",
      /data URL/,
    ],
    ["a file on a server without files", part({ type: "file", file: { file_id: "x" } }), "messages", /keeps no files/],
    ["an empty file", part({ type: "file", file: {} }), "messages[1].content[1].file", /either file_id/],
    [
      "a refusal of the user's",
      part({ type: "refusal", refusal: "no" }),
      "messages[1].content[1].type",
      /got "refusal"/,
    ],
    [
      "a call of the older kind",
      said({ function_call: { name: "f", arguments: "" } }),
      "messages[1].function_call",
      /tool_calls/,
    ],
    ["the result of one", [asks, { role: "function", name: "f", content: "" }], "messages[1].role", /role "tool"/],
    [
      "a custom call",
      said({ tool_calls: [call("a"), { id: "b", type: "custom", custom: {} }] }),
      "messages[1].tool_calls[1]",
      /"custom" is not supported/,
    ],
    ["audio of the assistant's", said({ audio: { id: "x" } }), "messages[1].audio", /not supported/],
    ["two thoughts", said({ reasoning: "a", reasoning_content: "b" }), "messages[1].reasoning", /contradicts/],
    [
      "a call without arguments",
      said({ tool_calls: [{ ...call("a"), function: { name: "f" } }] }),
      "messages[1].tool_calls[0].function.arguments",
      /got nothing/,
    ],
    ["too many calls", said({ tool_calls: Array(257).fill(call("a")) }), "messages[1].tool_calls", /at most 256/],
    ["a result that names no call", [asks, { role: "tool", content: "x" }], "messages[1].tool_call_id", /got nothing/],
    [
      "a result of no call",
      [asks, calls, { role: "tool", tool_call_id: "c", content: "" }],
      "messages[2].tool_call_id",
      /got "c"/,
    ],
    [
      "a result before its call",
      [{ role: "tool", tool_call_id: "a", content: "" }, calls],
      "messages[0].tool_call_id",
      /earlier/,
    ],
    ["a result without content", [calls, { role: "tool", tool_call_id: "a" }], "messages[1].content", /got nothing/],
    ["a misspelt field", [{ ...asks, contents: "x" }], "messages[0].contents", /did you mean "content"/],
  ];
  for (const [what, messages, param, message] of refused) {
    it(`refuse ${what} with its path`, async () => {
      const reply = await send(messages);
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.param], [400, param], reply.body);
      assert.match(error.message, message);
    });
  }

  it("accept repeated results, and results for any earlier message", async () => {
    const result = { role: "tool", tool_call_id: "a", content: "" };
    assert.equal((await send([calls, result, asks, result])).status, 200);
  });
});
