import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { messages, refused, refusedParams, taken } from "./messages-rig.ts";

const call = { type: "tool_use", id: "t1", name: "look", input: { at: 1 } };

async function conversation(body: object) {
  const { prompt } = await taken(body);
  assert.ok(prompt.kind === "chat");
  return prompt.messages;
}

describe("the conversation of a messages request", () => {
  it("puts the system text first and merges consecutive messages of one role", async () => {
    const shown = await conversation({
      system: [
        { type: "text", text: "be", cache_control: { type: "ephemeral" } },
        { type: "text", text: "brief" },
      ],
      messages: [
        { role: "user", content: "a" },
        { role: "user", content: [{ type: "text", text: "b" }] },
        { role: "assistant", content: "c" },
        {
          role: "assistant",
          content: [
            { type: "text", text: "d" },
            { type: "text", text: "e", citations: null },
          ],
        },
        { role: "system", content: "now" },
        { role: "user", content: "f" },
      ],
    });
    assert.deepEqual(shown, [
      { role: "system", content: "be\nbrief" },
      { role: "user", content: "a\nb" },
      { role: "assistant", content: "cde" },
      { role: "system", content: "now" },
      { role: "user", content: "f" },
    ]);
  });

  it("omits calls that another server ran, whatever their names", async () => {
    const ran = { type: "server_tool_use", id: "srvtoolu_0_c1", name: "constructor", input: {} };
    const result = { type: "web_fetch_tool_result", tool_use_id: ran.id, content: { error_code: "unavailable" } };
    const shown = await conversation({
      messages: [
        { role: "user", content: "go" },
        { role: "assistant", content: [ran, result, { type: "text", text: "Done." }] },
        { role: "user", content: "and?" },
      ],
    });
    assert.deepEqual(shown, [
      { role: "user", content: "go" },
      { role: "assistant", content: "Done." },
      { role: "user", content: "and?" },
    ]);
  });

  it("keeps thinking and calls, turns each result into a message in the order of the calls, before all text, and marks failed tools", async () => {
    const shown = await conversation({
      messages: [
        { role: "user", content: "go" },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm", signature: "abc" },
            { type: "redacted_thinking", data: "xyz" },
            { type: "server_tool_use", id: "s1", name: "web_search", input: {} },
            { type: "web_search_tool_result", tool_use_id: "s1", content: [] },
            { type: "text", text: "I look" },
            { ...call, caller: { type: "direct" } },
            { ...call, id: "t2", name: "listen", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "t2", is_error: true, content: "deaf" },
            { type: "text", text: "and?" },
            {
              type: "tool_result",
              tool_use_id: "t1",
              content: [
                { type: "text", text: "x" },
                { type: "text", text: "y" },
              ],
            },
          ],
        },
      ],
    });
    assert.deepEqual(shown, [
      { role: "user", content: "go" },
      {
        role: "assistant",
        content: "I look",
        reasoning: "hm",
        toolCalls: [
          { id: "t1", name: "look", arguments: '{"at":1}' },
          { id: "t2", name: "listen", arguments: "{}" },
        ],
      },
      { role: "tool", content: "x\ny", name: "look", toolCallId: "t1" },
      { role: "tool", content: "The tool failed: deaf", name: "listen", toolCallId: "t2" },
      { role: "user", content: "and?" },
    ]);
  });

  it("refuses results without a call, and calls without a result", async () => {
    const result = { type: "tool_result", tool_use_id: "t1", content: "x" };
    const user = (...content: object[]) => ({ role: "user", content });
    const called = { role: "assistant", content: [call] };
    const hi = { type: "text", text: "hi" };
    const params = await refusedParams(
      [
        [user(result)],
        [user(hi), called, user(result), user(result)],
        [user(hi), called, user({ ...result, tool_use_id: "t2" })],
        [user(hi), called, user(hi)],
        [user(hi), called, user(result), { role: "assistant", content: "ok" }, user(result)],
        [user(hi), { role: "assistant", content: [call, { ...call, id: "t2" }] }, user(result)],
        [user(hi), called],
      ].map((wrong) => ({ messages: wrong })),
    );
    assert.deepEqual(params, [
      "messages[0].content[0].tool_use_id",
      "messages[3].content[0].tool_use_id",
      "messages[2].content[0].tool_use_id",
      "messages[2].content[0]",
      "messages[4].content[0].tool_use_id",
      "messages",
      "messages",
    ]);
  });

  it("refuses blocks that a text model cannot read, with type and path", async () => {
    const image = { type: "image", source: { type: "url", url: "file:///b.png" } };
    const [message, param] = await refused({
      messages: [{ role: "user", content: [{ type: "text", text: "" }, image] }],
    });
    assert.equal(param, "messages[0].content[1].source.url");
    assert.match(message, /data URL/);
    const inResult = { type: "tool_result", tool_use_id: "t1", content: [image] };
    assert.deepEqual(
      await refusedParams([
        { messages: [...messages, { role: "assistant", content: [call] }, { role: "user", content: [inResult] }] },
        { messages: [{ role: "user", content: [{ type: "document", source: {} }] }] },
        { messages: [{ role: "user", content: [call] }] },
        { messages: [{ role: "tool", content: "x" }] },
        { system: [image] },
      ]),
      [
        "messages[2].content[0].content[0].source.url",
        "messages[0].content[0].source.type",
        "messages[0].content[0].type",
        "messages[0].role",
        "system[0]",
      ],
    );
  });

  it("refuses an input that is nested too deeply", async () => {
    const input = JSON.parse(`${'{"a":'.repeat(70)}1${"}".repeat(70)}`);
    const [message] = await refused({
      messages: [...messages, { role: "assistant", content: [{ ...call, input }] }, ...messages],
    });
    assert.match(message, /input: expected an object of at most/);
  });
});
