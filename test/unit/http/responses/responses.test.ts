import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { GenerateEvent } from "../../../../engines/generation.ts";
import { EventText, noEvents } from "../../../../http/responses/fold/event-text.ts";
import { ResponseFold } from "../../../../http/responses/fold/fold.ts";
import { responseText } from "../../../../http/responses/fold/resource.ts";
import { AnswerMemory } from "../../../../http/shared/answer/answer-memory.ts";
import {
  done,
  failure,
  finish,
  reasoning,
  type Step,
  text,
  toolCall,
  usage,
} from "../../../fixtures/fakes/fake-inference.ts";
import { checkResponseStream, parseResponseStream } from "../../../fixtures/responses-checker.ts";
import { testTokens } from "../../../fixtures/text/logprobs.ts";
import { wholeText } from "../../../fixtures/text/pieces.ts";
import { errorOf, type Json, ResponsesRig } from "./responses-rig.ts";

const input = "hi";
const script =
  (...steps: readonly Step[]) =>
  () =>
    steps;

const weather = { type: "function", name: "weather", parameters: { type: "object" } };

describe("a response", () => {
  it("has every field of the resource, with the echoed settings", async () => {
    const rig = new ResponsesRig();
    const response = await rig.create({
      model: "other",
      input,
      instructions: "Be short.",
      metadata: { run: "7" },
      temperature: 0.5,
      max_tokens: 20,
      tools: [{ type: "function", function: { name: "weather", strict: true } }],
      tool_choice: "auto",
      reasoning: { effort: "low", summary: "auto" },
      user: "me",
    });
    const { id, created_at, completed_at, output, ...rest } = response;
    assert.match(id, /^resp_[0-9a-f]{32}$/);
    assert.ok(completed_at >= created_at);
    assert.deepEqual(output, [
      {
        id: `msg_${id.slice(5)}_0`,
        type: "message",
        status: "completed",
        role: "assistant",
        content: [{ type: "output_text", text: "Hello world", annotations: [], logprobs: [] }],
      },
    ]);
    assert.deepEqual(rest, {
      object: "response",
      status: "completed",
      error: null,
      incomplete_details: null,
      model: "other",
      output_text: "Hello world",
      usage: {
        input_tokens: 8,
        input_tokens_details: { cached_tokens: 5, cache_write_tokens: 0 },
        output_tokens: 4,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 12,
      },
      background: false,
      instructions: "Be short.",
      max_output_tokens: 20,
      max_tool_calls: null,
      parallel_tool_calls: true,
      previous_response_id: null,
      prompt_cache_key: null,
      reasoning: { effort: "low", summary: "auto" },
      safety_identifier: null,
      service_tier: "default",
      store: true,
      temperature: 0.5,
      text: { format: { type: "text" }, verbosity: "medium" },
      tool_choice: "auto",
      tools: [{ type: "function", name: "weather", description: null, parameters: null, strict: true }],
      top_logprobs: 0,
      top_p: 0.95,
      presence_penalty: 0,
      frequency_penalty: 0,
      truncation: "disabled",
      user: "me",
      metadata: { run: "7" },
    });
  });

  it("streams the events of a text in order", async () => {
    const { types, response, events } = await new ResponsesRig().stream({ input });
    assert.deepEqual(types, [
      "created",
      "in_progress",
      "output_item.added",
      "content_part.added",
      "output_text.delta",
      "output_text.delta",
      "output_text.done",
      "content_part.done",
      "output_item.done",
      "completed",
    ]);
    assert.equal(response.output_text, "Hello world");
    assert.deepEqual(events[4], {
      type: "response.output_text.delta",
      sequence_number: 4,
      item_id: response.output[0].id,
      output_index: 0,
      content_index: 0,
      delta: "Hello",
      logprobs: [],
    });
  });

  it("streams reasoning, text and calls as separate items", async () => {
    const { types, response } = await new ResponsesRig(
      script(
        [reasoning("Hm"), reasoning("m.")],
        [text("I look.")],
        [...toolCall("weather", ['{"city":', '"Rome"}']), ...toolCall("time", ["{}"], 1)],
        [finish("tool_calls"), { ...done, usage: { ...usage, reasoningTokens: 2 } } as GenerateEvent],
      ),
    ).stream({ input, tools: [weather] });
    assert.deepEqual(
      response.output.map(({ type, status }: Json) => [type, status]),
      [
        ["reasoning", "completed"],
        ["message", "completed"],
        ["function_call", "completed"],
        ["function_call", "completed"],
      ],
    );
    const { id: _id, ...thought } = response.output[0];
    assert.deepEqual(thought, {
      type: "reasoning",
      status: "completed",
      summary: [],
      content: [{ type: "reasoning_text", text: "Hmm." }],
    });
    const { id: _, ...call } = response.output[2];
    assert.deepEqual(call, {
      type: "function_call",
      status: "completed",
      call_id: "call_0",
      name: "weather",
      arguments: '{"city":"Rome"}',
    });
    assert.equal(response.usage.output_tokens_details.reasoning_tokens, 2);
    assert.equal(types.filter((type) => type === "function_call_arguments.delta").length, 3);
    assert.equal(types.filter((type) => type === "reasoning_text.delta").length, 2);
  });

  it("is incomplete at the token limit, and so is its truncated item", async () => {
    const cut = script([text("Once upon")], [finish("length"), done]);
    const { types, response } = await new ResponsesRig(cut).stream({ input });
    assert.equal(types.at(-1), "incomplete");
    assert.deepEqual(
      [response.status, response.incomplete_details, response.output[0].status],
      ["incomplete", { reason: "max_output_tokens" }, "incomplete"],
    );
    const whole = await new ResponsesRig(cut).create({ input });
    assert.deepEqual([whole.status, whole.output_text], ["incomplete", "Once upon"]);
  });

  it("keeps a failed call as incomplete with its partial arguments", async () => {
    const [call, ...pieces] = toolCall("weather", ['{"city":']).slice(0, -1);
    const failed: GenerateEvent = { type: "tool_call_failed", choice: 0, call: 0, text: '<call>{"city":' };
    const { response } = await new ResponsesRig(
      script([call as GenerateEvent, ...pieces, failed, text(" Sorry."), finish(), done]),
    ).stream({ input, tools: [weather] });
    const [item, message] = response.output;
    assert.deepEqual([item.status, item.arguments, message.content[0].text], ["incomplete", '{"city":', " Sorry."]);
    assert.equal(response.status, "completed");
  });

  it("has a failed call as text if nothing of it has been sent", async () => {
    const [call, piece] = toolCall("weather", ['{"city":']);
    const failed: GenerateEvent = { type: "tool_call_failed", choice: 0, call: 0, text: '<call>{"city":' };
    const events = [text("Well: "), call, piece, failed, text(" Sorry."), finish(), done] as GenerateEvent[];
    const { output, output_text } = await new ResponsesRig(script(events)).create({ input, tools: [weather] });
    assert.deepEqual(
      output.map(({ type }: Json) => type),
      ["message", "message"],
    );
    assert.equal(output_text, 'Well: <call>{"city": Sorry.');
  });

  it("has a refusal as a part after the refused text", async () => {
    const refused: GenerateEvent = { type: "refusal", choice: 0, reason: "not of the schema" };
    const { types, response } = await new ResponsesRig(script([text("5"), refused, finish(), done])).stream({ input });
    assert.deepEqual(response.output[0].content, [
      { type: "output_text", text: "5", annotations: [], logprobs: [] },
      { type: "refusal", refusal: "not of the schema" },
    ]);
    assert.ok(types.includes("refusal.done"));
  });

  it("has an empty message without output, and no empty text event", async () => {
    const { types, response } = await new ResponsesRig(script([finish(), done])).stream({ input });
    assert.deepEqual(response.output[0].content, [{ type: "output_text", text: "", annotations: [], logprobs: [] }]);
    assert.ok(!types.includes("output_text.delta"));
  });

  it("reports requested logprobs in the deltas and in the whole response", async () => {
    const token = { token: "Hi", bytes: [72, 105], logprob: -0.5 };
    const rig = new ResponsesRig(script([text("Hi", 0, [{ ...token, top: [token] }])], [finish(), done]));
    const { events, response } = await rig.stream({
      input,
      include: ["message.output_text.logprobs"],
      top_logprobs: 1,
    });
    const expected = [{ ...token, top_logprobs: [token] }];
    assert.deepEqual(response.output[0].content[0].logprobs, expected);
    assert.deepEqual(events.find(({ type }) => type === "response.output_text.delta")?.logprobs, expected);
    assert.equal(rig.inference.lastRun.request.sampling.topLogprobs, 1);
  });

  it("returns an error before the first event with its status, and stores nothing", async () => {
    for (const stream of [true, false]) {
      const rig = new ResponsesRig(script([failure("queue_full")]));
      assert.deepEqual(errorOf(await rig.send({ input, stream })), [429, "queue_full", null]);
      assert.deepEqual(rig.addedIds, []);
    }
  });

  it("ends a stream that fails later with an error and response.failed, and is stored as failed", async () => {
    const rig = new ResponsesRig(script([text("Hel")], [failure("model_failed", "it broke")]));
    const { types, response, events } = await rig.stream({ input });
    assert.deepEqual(types.slice(-2), ["error", "failed"]);
    assert.deepEqual(events.at(-2)?.error, { type: "internal_error", code: "model_failed", message: "it broke" });
    assert.deepEqual([response.error.code, response.output[0].status], ["model_failed", "incomplete"]);
    assert.deepEqual(await rig.fetch(response.id), response);
    assert.deepEqual(errorOf(await rig.send({ input })), [503, "model_failed", null]);
    assert.equal(rig.addedIds.length, 1);
  });

  it("equals the fold of its stream, and the unstreamed response if no call fails", () => {
    const words = fc.string({ maxLength: 6 });
    const event: fc.Arbitrary<GenerateEvent[]> = fc.oneof(
      words.map((word) => [reasoning(word)]),
      words.map((word) => [text(word)]),
      fc.array(words, { maxLength: 3 }).map((pieces) => toolCall("f", pieces)),
      fc
        .array(words, { maxLength: 3 })
        .map((pieces): GenerateEvent[] => [
          ...toolCall("f", pieces).slice(0, -1),
          { type: "tool_call_failed", choice: 0, call: 0, text: "" },
        ]),
      fc
        .array(words, { maxLength: 3 })
        .map((pieces): GenerateEvent[] => [
          ...toolCall("f", pieces).slice(0, -1),
          { type: "tool_call_cut", choice: 0, call: 0 },
        ]),
      words.map((reason): GenerateEvent[] => [{ type: "refusal", choice: 0, reason }]),
    );
    const ends: fc.Arbitrary<GenerateEvent[] | null> = fc.oneof(
      fc.constantFrom("stop" as const, "length" as const).map((reason): GenerateEvent[] => [finish(reason), done]),
      fc.constant([failure("model_failed")] as GenerateEvent[]),
      fc.constant(null),
    );
    fc.assert(
      fc.property(fc.array(event), ends, fc.boolean(), (events, end, isQueued) => {
        const status = isQueued ? "queued" : "in_progress";
        const lease = new AnswerMemory().lease("client");
        const written = new EventText();
        const folds = [written, noEvents].map(
          (events) =>
            new ResponseFold({ head, events, status, hasExtensions: true, tokenTexts: () => testTokens, lease }),
        );
        for (const fold of folds) {
          for (const each of [...events.flat(), ...(end ?? [])]) fold.take(each);
          if (end === null) fold.interrupt("cancelled");
        }
        const [streamed, whole] = folds.map((fold) => ({
          ...JSON.parse(responseText(head, fold.state)),
          completed_at: 0,
        }));
        const isCall = ({ type }: GenerateEvent): boolean => type !== "tool_call_failed";
        if (events.flat().every(isCall)) assert.deepEqual(streamed, whole);
        const said = written.take().map((chunk) => wholeText(chunk.after(-1)));
        const body = `${said.join("")}data: [DONE]\n\n`;
        assert.deepEqual(
          { ...checkResponseStream(parseResponseStream(body)), completed_at: 0 },
          JSON.parse(JSON.stringify(streamed)),
        );
      }),
      { numRuns: 200 },
    );
  });
});

describe("a response whose tool runs when it fails", () => {
  it("ends the item of the tool before the error", () => {
    const written = new EventText();
    const lease = new AnswerMemory().lease("client");
    const fold = new ResponseFold({
      ...{ head, events: written, status: "in_progress", hasExtensions: false, tokenTexts: () => testTokens, lease },
    });
    const call = { id: "c", name: "service_shell", arguments: '{"command":"sleep 9"}' };
    const progress = { type: "tool_progress", round: 0, index: 0, call, toolType: "shell", server: null } as const;
    fold.take({ ...progress, phase: "calling", data: { tool_type: "shell" }, record: null });
    fold.take(failure("storage_unavailable"));
    const body = written.take().map((chunk) => wholeText(chunk.after(-1)));
    const types = [...body.join("").matchAll(/^event: (.*)$/gm)].map(([, type]) => type);
    assert.deepEqual(types.slice(-3), ["response.output_item.done", "error", "response.failed"]);
    assert.equal(fold.state.output[0]?.status, "incomplete");
  });
});

const head = {
  id: `resp_${"0".repeat(32)}`,
  createdAt: 1,
  model: "m",
  settings: Buffer.from(`,${JSON.stringify(settings()).slice(1)}`),
  namespacedNames: new Map(),
  includesSources: false,
};

function settings(): object {
  return {
    instructions: null,
    metadata: {},
    parallel_tool_calls: true,
    temperature: 1,
    top_p: 1,
    tools: [],
    tool_choice: "auto",
    text: {},
    reasoning: {},
    store: true,
    background: true,
    max_output_tokens: null,
    previous_response_id: null,
    truncation: "disabled",
    user: null,
  };
}
