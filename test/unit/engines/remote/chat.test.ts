// Chat completions of remote servers, converted to text events: calls in pieces, calls that are cut off or not JSON, unknown
// shapes.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { GenerateEvent, RequestContent } from "../../../../engines/generation.ts";
import { ChatReader, chatBody } from "../../../../engines/remote/chat.ts";
import { chatTranslator } from "../../../../http/chat/translator.ts";
import { compactTranslator } from "../../../../http/responses/request/translator.ts";
import type { AskedRequest } from "../../../../http/shared/translation.ts";

const chunk = (delta: object, reason: string | null = null, index = 0): object => ({
  choices: [{ index, delta, finish_reason: reason }],
});
const call = (index: number, name: string | undefined, args: string, id?: string): object => ({
  tool_calls: [
    {
      index,
      ...(id === undefined ? {} : { id }),
      function: { ...(name === undefined ? {} : { name }), arguments: args },
    },
  ],
});

function read(...chunks: readonly object[]): {
  readonly events: readonly GenerateEvent[];
  readonly reader: ChatReader;
} {
  const reader = new ChatReader(1);
  return { events: chunks.flatMap((each) => reader.read(each)), reader };
}

/** Returns the id, name, arguments and end of each call. */
function callsOf(events: readonly GenerateEvent[]): readonly (readonly string[])[] {
  return events.flatMap((event) => {
    if (event.type !== "tool_call") return [];
    const own = events.filter((other) => "call" in other && other.call === event.call);
    const text = own.map((other) => (other.type === "tool_arguments" ? other.text : "")).join("");
    return [[event.id, event.name, text, own.at(-1)?.type ?? ""]];
  });
}

describe("the request of a chat completion", () => {
  const bodyOf = (asked: AskedRequest) => {
    const origin = { model: "m", adapter: null, client: "", series: null, receivedAt: 0 };
    return JSON.parse(chatBody("m", { ...asked, ...origin }, asked as RequestContent));
  };
  const ofChat = (fields: object) =>
    bodyOf(chatTranslator.translate({ messages: "hi", ...fields }, null, "refuse").asked);

  it("has the reasoning effort, which also switches thinking on or off", () => {
    assert.equal(ofChat({ reasoning_effort: "low" }).reasoning_effort, "low");
    assert.equal(ofChat({ reasoning_effort: "high", enable_thinking: true }).reasoning_effort, "high");
    assert.equal(ofChat({ reasoning_effort: "off" }).reasoning_effort, "none");
    assert.throws(() => ofChat({ enable_thinking: true }), /^ServerError: enable_thinking: .*does not take it/);
  });

  it("can ask for the summary of a conversation", () => {
    const parameters = { responseId: "resp_1", offered: null };
    const { asked } = compactTranslator.translate({ model: "m", input: "hi" }, parameters, "refuse");
    assert.equal(bodyOf(asked).reasoning_effort, "none");
  });
});

describe("a stream of chat completions", () => {
  it("becomes reasoning, text, calls and the finish reason", () => {
    const { events, reader } = read(
      chunk({ role: "assistant", content: "" }),
      chunk({ reasoning_content: "hm" }),
      chunk({ content: "Let me see. " }),
      chunk(call(0, "one", "", "call_a")),
      chunk(call(0, undefined, '{"a":')),
      chunk(call(0, undefined, "1}")),
      chunk(call(1, "two", "{}")),
      chunk({}, "tool_calls"),
      { choices: [], usage: { prompt_tokens: 7, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 3 } } },
    );
    assert.deepEqual(events, [
      { type: "reasoning", choice: 0, text: "hm" },
      { type: "text", choice: 0, text: "Let me see. " },
      { type: "tool_call", choice: 0, call: 0, id: "call_a", name: "one" },
      { type: "tool_arguments", choice: 0, call: 0, text: '{"a":' },
      { type: "tool_arguments", choice: 0, call: 0, text: "1}" },
      { type: "tool_call_end", choice: 0, call: 0 },
      { type: "tool_call", choice: 0, call: 1, id: "call_0_1", name: "two" },
      { type: "tool_arguments", choice: 0, call: 1, text: "{}" },
      { type: "tool_call_end", choice: 0, call: 1 },
      { type: "finish", choice: 0, reason: "tool_calls", stopString: null },
    ]);
    assert.ok(reader.isComplete);
    assert.deepEqual(reader.usage, { promptTokens: 7, cachedTokens: 3, completionTokens: 5, reasoningTokens: 0 });
  });

  it("has as many calls as ids, if the server gives all calls one index", () => {
    const { events } = read(
      chunk(call(0, "one", '{"a":1}', "x")),
      chunk(call(0, "two", '{"b":', "y")),
      chunk(call(0, undefined, "2}", "y")),
      chunk(call(0, "three", "{", "z")),
      chunk(call(0, undefined, "}", "other id of the same call")),
      chunk({}, "tool_calls"),
    );
    assert.deepEqual(callsOf(events), [
      ["x", "one", '{"a":1}', "tool_call_end"],
      ["y", "two", '{"b":2}', "tool_call_end"],
      ["z", "three", "{}", "tool_call_end"],
    ]);
  });

  it("has a whole call with an empty object if the server sends no arguments", () => {
    const { events } = read(chunk(call(0, "one", "", "x")), chunk(call(1, "two", "", "y")), chunk({}, "tool_calls"));
    assert.deepEqual(callsOf(events), [
      ["x", "one", "{}", "tool_call_end"],
      ["y", "two", "{}", "tool_call_end"],
    ]);
    const cut = read(chunk(call(0, "one", "", "x")), chunk({}, "length"));
    assert.deepEqual(callsOf(cut.events), [["x", "one", "", "tool_call_cut"]]);
  });

  it("finishes with `stop` if no call is whole", () => {
    const { reader } = read(chunk(call(0, "one", '{"a":', "x")), chunk({}, "tool_calls"));
    assert.deepEqual(reader.reasons, ["stop"]);
  });

  it("distinguishes truncated calls, calls that are not JSON, and filtered output", () => {
    const last = (reason: string): unknown =>
      read(chunk(call(0, "one", '{"a":', "x")), chunk({}, reason))
        .events.slice(2)
        .map(({ type }) => type);
    assert.deepEqual(last("length"), ["tool_call_cut", "finish"]);
    assert.deepEqual(last("tool_calls"), ["tool_call_failed", "finish"]);
    const filtered = read(chunk({ content: "a" }), chunk({}, "content_filter")).events;
    assert.deepEqual(
      filtered.map(({ type }) => type),
      ["text", "refusal", "finish"],
    );
  });

  it("is refused if it has an error, another shape, or a choice that was not requested", () => {
    for (const wrong of [
      { error: { message: "out of memory" } },
      { choices: [{ index: 3, delta: { content: "a" } }] },
      { choices: "none" },
      chunk({ tool_calls: [{ index: 0, function: { arguments: "{}" } }] }),
      [],
    ]) {
      assert.throws(() => read(wrong as object), { name: "UpstreamFailure" }, JSON.stringify(wrong));
    }
  });
});
