import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type Anthropic from "@anthropic-ai/sdk";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { streamEventSchema } from "../../../../http/messages/operation.ts";
import { messageSchema, wholeMessage } from "../../../../http/messages/response.ts";
import { MessageStream } from "../../../../http/messages/stream.ts";
import { collectAnswer } from "../../../../http/shared/answer/answer.ts";
import { AnswerMemory } from "../../../../http/shared/answer/answer-memory.ts";
import { done, failure, finish, reasoning, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";

/** Message type of the vendor's client, without the `citations` of text blocks, because some other clients do not accept null there. */
interface VendorsMessage extends Omit<Anthropic.Message, "content"> {
  readonly content: readonly (
    | Anthropic.ThinkingBlock
    | Anthropic.ToolUseBlock
    | Anthropic.ServerToolUseBlock
    | Anthropic.CodeExecutionToolResultBlock
    | Anthropic.BashCodeExecutionToolResultBlock
    | Anthropic.WebSearchToolResultBlock
    | Anthropic.WebFetchToolResultBlock
    | Anthropic.Beta.BetaMCPToolUseBlock
    | Anthropic.Beta.BetaMCPToolResultBlock
    | Omit<Anthropic.TextBlock, "citations">
  )[];
}

const head = { id: "msg_1", model: "m" };
const lease = new AnswerMemory().lease("a");
const begin: GenerateEvent = { type: "begin", promptTokens: 8, cachedTokens: 5 };
const refusal: GenerateEvent = { type: "refusal", choice: 0, reason: "not an object" };

function failedCall(pieces: readonly string[], whole: string): GenerateEvent[] {
  const [start, ...rest] = toolCall("look", pieces);
  return [start!, ...rest.slice(0, -1), { type: "tool_call_failed", choice: 0, call: 0, text: whole }];
}

/** Returns the body of a stream whose events arrive one at a time. */
function transcript(events: readonly GenerateEvent[]): string {
  const codec = new MessageStream(head, "req-1", true);
  const out = events.map((event) => codec.encode([event])).join("");
  assert.ok(codec.isEnded);
  return out;
}

/** Returns the data of a stream's events. Asserts that each event has the name of its type and matches its schema. */
function stream(events: readonly GenerateEvent[]) {
  const frames = transcript(events).split("\n\n");
  assert.equal(frames.pop(), "");
  return frames.map((frame) => {
    const [, name, json] = /^event: (\w+)\ndata: (.*)$/.exec(frame)!;
    const data = JSON.parse(json!);
    assert.equal(data.type, name);
    if (name !== "error") streamEventSchema.parse(data);
    return data;
  });
}

async function whole(events: readonly GenerateEvent[]) {
  async function* batches() {
    for (const event of events) yield [event];
  }
  const options = { choiceCount: 1, prefixLength: 0, texts: () => assert.fail("no logprobs"), lease };
  const body = wholeMessage(head, await collectAnswer(batches(), options), false);
  return messageSchema.parse(JSON.parse(JSON.stringify(body)));
}

/** Returns whether `whole` has all values of `part`, at the same paths. */
function isPartOf(part: unknown, whole: unknown): boolean {
  if (typeof part !== "object" || part === null) return part === whole;
  if (typeof whole !== "object" || whole === null || Array.isArray(part) !== Array.isArray(whole)) return false;
  return Object.entries(part).every(([key, value]) => isPartOf(value, (whole as Record<string, unknown>)[key]));
}

const everything = [
  begin,
  reasoning("Hm"),
  reasoning("m."),
  text('I "look"\n'),
  ...toolCall("look", ['{"at":', '"é"}']),
  text("Done."),
  finish("tool_calls"),
  done,
];

describe("a streamed message", () => {
  it("matches the expected text, from thinking to the text after a call", () => {
    const usage = '"cache_read_input_tokens":5,"cache_creation_input_tokens":0,"output_tokens"';
    const delta = (index: number, json: string) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":${json}}\n\n`;
    const start = (index: number, json: string) =>
      `event: content_block_start\ndata: {"type":"content_block_start","index":${index},"content_block":${json}}\n\n`;
    const stop = (index: number) =>
      `event: content_block_stop\ndata: {"type":"content_block_stop","index":${index}}\n\n`;
    assert.equal(
      transcript(everything),
      [
        'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",',
        '"model":"m","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"diagnostics":null,',
        `"usage":{"input_tokens":3,${usage}:0,"output_tokens_details":{"thinking_tokens":0},"server_tool_use":null,`,
        '"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"inference_geo":null,',
        '"service_tier":"standard","speed":null}}}\n\n',
        'event: ping\ndata: {"type":"ping"}\n\n',
        start(0, '{"type":"thinking","thinking":"","signature":""}'),
        delta(0, '{"type":"thinking_delta","thinking":"Hm"}'),
        delta(0, '{"type":"thinking_delta","thinking":"m."}'),
        delta(0, '{"type":"signature_delta","signature":""}'),
        stop(0),
        start(1, '{"type":"text","text":""}'),
        delta(1, '{"type":"text_delta","text":"I \\"look\\"\\n"}'),
        stop(1),
        start(2, '{"type":"tool_use","id":"call_0","name":"look","input":{},"caller":{"type":"direct"}}'),
        delta(2, '{"type":"input_json_delta","partial_json":"{\\"at\\":"}'),
        delta(2, '{"type":"input_json_delta","partial_json":"\\"é\\"}"}'),
        stop(2),
        start(3, '{"type":"text","text":""}'),
        delta(3, '{"type":"text_delta","text":"Done."}'),
        stop(3),
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,',
        '"stop_details":null,"container":null},',
        `"usage":{"input_tokens":3,${usage}:4,"output_tokens_details":{"thinking_tokens":0},"server_tool_use":null}}\n\n`,
        'event: message_stop\ndata: {"type":"message_stop"}\n\n',
      ].join(""),
    );
  });

  it("has contiguous indices over consecutive calls, and events that match their schema", () => {
    const events = stream([begin, ...toolCall("a", ["{}"]), ...toolCall("b", ["{}"], 1), finish("tool_calls"), done]);
    assert.deepEqual(
      events.filter((event) => "index" in event).map(({ type, index }) => `${type} ${index}`),
      [0, 1].flatMap((i) => ["start", "delta", "stop"].map((step) => `content_block_${step} ${i}`)),
    );
  });

  it("reports the stop string that ended it", () => {
    const last = stream([begin, text("a"), finish("stop", 0, "###"), done]).at(-2);
    assert.deepEqual([last.delta.stop_reason, last.delta.stop_sequence], ["stop_sequence", "###"]);
  });

  it("reports the reason of a refusal", () => {
    const { delta } = stream([begin, text("a"), refusal, finish(), done]).at(-2);
    assert.deepEqual(
      [delta.stop_reason, delta.stop_details],
      ["refusal", { type: "refusal", category: null, explanation: "not an object" }],
    );
  });

  it("closes a truncated call with the input sent so far", () => {
    const events = stream([begin, ...failedCall(['{"at":'], '<call>{"at":'), finish("length"), done]);
    assert.deepEqual(
      events.slice(2, -2).map(({ type }) => type),
      ["content_block_start", "content_block_delta", "content_block_stop"],
    );
    assert.equal(events.at(-2).delta.stop_reason, "max_tokens");
  });

  it("starts without prompt counts, and has no block without output", () => {
    const events = stream([text(""), finish(), done]);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["message_start", "ping", "message_delta", "message_stop"],
    );
    assert.equal(events[0].message.usage.input_tokens, 0);
    assert.equal(events[2].usage.input_tokens, 3);
  });

  it("ends with an error in the protocol's shape", () => {
    const events = stream([begin, text("a"), failure("model_failed", "it died")]);
    assert.deepEqual(events.at(-1), {
      type: "error",
      error: { type: "overloaded_error", message: "it died", details: { error_code: "model_failed", param: null } },
      request_id: "req-1",
    });
    // So far, the stream has sent only a keep-alive comment.
    assert.deepEqual(
      stream([failure("queue_timeout")]).map(({ type, error }) => [type, error.type]),
      [["error", "overloaded_error"]],
    );
  });

  it("is kept alive by a comment before it starts, and by pings after", () => {
    const codec = new MessageStream(head, "req-1", true);
    assert.equal(codec.keepAlive, ": keep-alive\n\n");
    codec.encode([begin]);
    assert.equal(codec.keepAlive, 'event: ping\ndata: {"type":"ping"}\n\n');
  });
});

describe("a whole message", () => {
  it("has its blocks in the model's order, and the usage without cached tokens", async () => {
    const message: VendorsMessage = await whole(everything);
    assert.deepEqual(message, {
      id: "msg_1",
      type: "message",
      role: "assistant",
      model: "m",
      content: [
        { type: "thinking", thinking: "Hmm.", signature: "" },
        { type: "text", text: 'I "look"\n' },
        { type: "tool_use", id: "call_0", name: "look", input: { at: "é" }, caller: { type: "direct" } },
        { type: "text", text: "Done." },
      ],
      stop_reason: "tool_use",
      stop_sequence: null,
      stop_details: null,
      container: null,
      diagnostics: null,
      usage: {
        input_tokens: 3,
        cache_read_input_tokens: 5,
        cache_creation_input_tokens: 0,
        output_tokens: 4,
        output_tokens_details: { thinking_tokens: 0 },
        server_tool_use: null,
        cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
        inference_geo: null,
        service_tier: "standard",
        speed: null,
      },
    });
  });

  it("reports the stop reason", async () => {
    const ends = [finish("length"), finish("stop", 0, "\n"), finish(), finish("tool_calls", 0, "\n")];
    const stops = ends.map(async (end) => {
      const { stop_reason, stop_sequence } = await whole([begin, text("a"), end, done]);
      return [stop_reason, stop_sequence];
    });
    assert.deepEqual(await Promise.all(stops), [
      ["max_tokens", null],
      ["stop_sequence", "\n"],
      ["end_turn", null],
      // If there are tool calls, a client acts on them and needs no stop sequence.
      ["tool_use", null],
    ]);
    assert.equal((await whole([begin, text("a"), refusal, finish(), done])).stop_details?.explanation, "not an object");
  });

  it("has a failed call as text", async () => {
    const { content } = await whole([begin, text("a "), ...failedCall(["{"], "<call>{"), finish(), done]);
    assert.deepEqual(content, [{ type: "text", text: "a <call>{" }]);
  });

  it("has the complete values of a call that the token limit has cut, as a client reads them from its stream", async () => {
    const args = '{"a": "x\\"}", "b": [1, -2.5e3, {"c": true, "d": []}], "e": null, "": {"f": "é"}}';
    for (let length = 0; length < args.length; length++) {
      const cut: GenerateEvent = { type: "tool_call_cut", choice: 0, call: 0 };
      const events = [begin, ...toolCall("look", [args.slice(0, length)]).slice(0, -1), cut, finish("length"), done];
      const { content, stop_reason } = await whole(events);
      const [block] = content;
      assert.ok(block?.type === "tool_use" && stop_reason === "max_tokens");
      const isPart = length === 0 || isPartOf(block.input, JSON.parse(args));
      assert.ok(isPart, `${args.slice(0, length)} is read as ${JSON.stringify(block.input)}`);
      assert.ok(length < 15 || (block.input as { a?: string }).a === 'x"}', args.slice(0, length));
    }
  });

  it("throws the error of the generation, and a missing end", async () => {
    await assert.rejects(whole([begin, failure("model_failed")]), { code: "model_failed" });
    await assert.rejects(whole([begin, text("a")]), { code: "peer_gone" });
  });
});
