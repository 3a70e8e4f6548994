import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { chatChunkSchema, chatCompletionSchema } from "../../../../http/chat/schemas.ts";
import { textCompletionSchema } from "../../../../http/completions/schemas.ts";
import {
  begin,
  done,
  FakeInference,
  failure,
  finish,
  type Script,
  text,
} from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import { type Json, ResponsesRig } from "../responses/responses-rig.ts";

const generation = "5a".repeat(32);
const other = "0f".repeat(32);
const answer: Script = ({ adapter }) => [
  [begin(adapter === null ? undefined : generation)],
  [text("Hello")],
  [text("!"), finish(), done],
];

const CHAT = "/v1/chat/completions";
const COMPLETIONS = "/v1/completions";
const RESPONSES = "/v1/responses";
const MESSAGES = "/v1/messages";

/** Request body for each route. */
const bodies: Readonly<Record<string, object>> = {
  [CHAT]: { messages: "hi" },
  [COMPLETIONS]: { prompt: "hi" },
  [RESPONSES]: { input: "hi" },
};

function adapted(inference: FakeInference): void {
  const [tiny, second] = inference.entries;
  const known = (alias: string) => ({ alias, generation, createdAt: 9 });
  inference.entries = [
    { ...tiny!, adapters: ["a::b", "100%", "#", "größe", "shared"].map(known) },
    { ...second!, adapters: [known("shared")] },
  ];
}

function setUp(script: Script = answer) {
  const inference = new FakeInference(script);
  adapted(inference);
  const app = createApp({ inference, log: recordingLog() });
  const post = async (path: string, body: Json) => {
    const reply = await request(app, "POST", path, { body: { ...bodies[path], ...body } });
    return { status: reply.status, body: JSON.parse(reply.body) };
  };
  return { inference, app, post };
}

describe("the adapter of a request", () => {
  for (const path of Object.keys(bodies)) {
    it(`is an alias, a generation, or none, on ${path}`, async () => {
      const { inference, post } = setUp();
      const cases: readonly (readonly [Json, Json])[] = [
        [{}, null],
        [{ adapter: null }, null],
        [{ adapter: "x" }, { alias: "x" }],
        [{ adapter: " a::b " }, { alias: "a::b" }],
        [{ adapter: { generation: generation.toUpperCase() } }, { generation }],
        [{ model: "tiny", adapter: "x" }, { alias: "x" }],
        [{ model: "tiny::a%3A%3Ab" }, { alias: "a::b" }],
        [{ model: "tiny::100%25" }, { alias: "100%" }],
        [{ model: "tiny::%23" }, { alias: "#" }],
        [{ model: "größe" }, { alias: "größe" }],
        [{ model: "a::b", adapter: null }, { alias: "a::b" }],
      ];
      for (const [body, expected] of cases) {
        assert.equal((await post(path, body)).status, 200, JSON.stringify(body));
        assert.deepEqual(inference.lastRun.request.adapter, expected, JSON.stringify(body));
        assert.equal(inference.lastRun.request.model, "tiny");
      }
    });

    it(`is refused if invalid, or with a model that includes one, on ${path}`, async () => {
      const { inference, post } = setUp();
      const cases: readonly Json[] = [
        "",
        "  ",
        "ü".repeat(129),
        5,
        [],
        ["x"],
        {},
        { alias: "x" },
        { generation: "5a" },
        { generation: "z".repeat(64) },
      ];
      for (const adapter of cases) {
        const { status, body } = await post(path, { adapter });
        assert.deepEqual([status, body.error.code], [400, "invalid_value"], JSON.stringify(adapter));
        assert.match(body.error.param, /^adapter/);
      }
      for (const adapter of ["#", { generation }]) {
        const { status, body } = await post(path, { model: "tiny::%23", adapter });
        assert.deepEqual([status, body.error.code, body.error.param], [400, "invalid_value", "adapter"]);
      }
      assert.equal(inference.runs.length, 0);
    });

    it(`is reported in the response of ${path}, with the id of the base model`, async () => {
      const { post } = setUp();
      const { body } = await post(path, { model: "größe" });
      assert.deepEqual([body.model, body.adapter_generation], ["tiny", generation]);
      if (path === CHAT) chatCompletionSchema.parse(body);
      if (path === COMPLETIONS) textCompletionSchema.parse(body);
      assert.ok(!("adapter_generation" in (await post(path, {})).body));
    });
  }

  it("is selected by the model id in the messages protocol, which has no field for it", async () => {
    const { inference, post } = setUp();
    const counted = { messages: [{ role: "user", content: "hi" }] };
    const hello = { ...counted, max_tokens: 9 };
    assert.equal((await post(MESSAGES, { ...hello, model: "tiny::%23" })).status, 200);
    assert.deepEqual(inference.lastRun.request.adapter, { alias: "#" });
    const { status, body } = await post(MESSAGES, { ...hello, adapter: "#" });
    assert.deepEqual([status, body.error.details.param], [400, "adapter"]);
    await post(`${MESSAGES}/count_tokens`, { ...counted, model: "tiny::%23" });
    assert.deepEqual(inference.countRequests[0]?.adapter, { alias: "#" });
  });

  it("is refused by embeddings", async () => {
    const { inference, post } = setUp();
    const { status, body } = await post("/v1/embeddings", { input: "hi", model: "tiny::%23" });
    assert.deepEqual([status, body.error.code, body.error.param], [400, "unsupported", "model"]);
    assert.equal(inference.embedRequests.length, 0);
  });

  it("is ambiguous if two models have it", async () => {
    const { post } = setUp();
    const { status, body } = await post(CHAT, { model: "shared" });
    assert.deepEqual([status, body.error.code], [404, "model_not_found"]);
    assert.equal((await post(CHAT, { model: "other::shared" })).body.model, "other");
  });

  it("is refused with its status if unknown, also for a stream", async () => {
    const { post } = setUp(() => [[{ type: "error", error: { ...unknown, message: "no such adapter" } }]]);
    for (const path of [CHAT, RESPONSES]) {
      for (const stream of [false, true]) {
        const { status, body } = await post(path, { adapter: "x", stream });
        assert.deepEqual([status, body.error.code, body.error.param], [400, "invalid_value", "adapter"]);
      }
    }
  });
});

const unknown = { code: "invalid_value", param: "adapter" } as const;

describe("a streamed answer with an adapter", () => {
  async function chunks(body: Json): Promise<Json[]> {
    const { app } = setUp();
    const reply = await request(app, "POST", CHAT, { body: { messages: "hi", stream: true, ...body } });
    const data = reply.body.split("\n\n").filter((event) => event.startsWith("data: {"));
    return data.map((event) => chatChunkSchema.parse(JSON.parse(event.slice("data: ".length))));
  }

  it("has its generation in every chunk, once", async () => {
    for (const include_usage of [false, true]) {
      const all = await chunks({ adapter: "x", n: 1, stream_options: { include_usage } });
      assert.equal(all.length, include_usage ? 4 : 3);
      for (const chunk of all) assert.equal(chunk.adapter_generation, generation);
      assert.deepEqual(
        all.map(({ usage }) => usage?.total_tokens ?? usage),
        include_usage ? [null, null, null, 12] : [undefined, undefined, 12],
      );
    }
  });

  it("has no generation for the base model", async () => {
    for (const chunk of await chunks({})) assert.ok(!("adapter_generation" in chunk));
  });
});

describe("a response with an adapter", () => {
  const rig = (script: Script = answer) => {
    const made = new ResponsesRig(script);
    adapted(made.inference);
    return made;
  };
  const get = async (app: ResponsesRig["app"], id: string): Promise<Json> =>
    JSON.parse((await request(app, "GET", `${RESPONSES}/${id}`)).body);

  it("has its generation at the end of its stream, and stores it", async () => {
    const { app, send } = bound(rig());
    const reply = await send({ input: "hi", adapter: "x", stream: true });
    const lines = reply.body.split("\n").filter((line) => line.startsWith("data: {"));
    const events: Json[] = lines.map((line) => JSON.parse(line.slice("data: ".length)));
    const [first, last] = [events[0].response, events.at(-1).response];
    assert.deepEqual([first.adapter_generation, last.adapter_generation], [undefined, generation]);
    assert.equal((await get(app, last.id)).adapter_generation, generation);
  });

  it("has it from the first event after the queue", async () => {
    const { send } = bound(rig());
    const reply = await send({ input: "hi", adapter: "x", stream: true, background: true });
    const lines = reply.body.split("\n").filter((line) => line.startsWith("data: {"));
    const events: Json[] = lines.map((line) => JSON.parse(line.slice("data: ".length)));
    const started = events.find(({ type }) => type === "response.in_progress");
    assert.equal(started.response.adapter_generation, generation);
  });

  it("can be continued with another adapter, or none", async () => {
    const made = rig(({ adapter }) => [
      [begin(adapter === null ? undefined : "alias" in adapter ? generation : adapter.generation)],
      [text("Hello"), finish(), done],
    ]);
    const { send } = bound(made);
    const ask = async (body: Json): Promise<Json> => JSON.parse((await send({ input: "hi", ...body })).body);
    const first = await ask({ adapter: "x" });
    const second = await ask({ adapter: { generation: other }, previous_response_id: first.id });
    const third = await ask({ previous_response_id: second.id });
    assert.deepEqual(
      [first, second, third].map((response) => response.adapter_generation),
      [generation, other, undefined],
    );
  });

  it("fails in its stream if it fails later", async () => {
    const made = rig(() => [[begin(generation), text("a")], [failure("model_failed")]]);
    const { send } = bound(made);
    const reply = await send({ input: "hi", adapter: "x", stream: true });
    assert.equal(reply.status, 200);
    assert.match(reply.body, new RegExp(`"adapter_generation":"${generation}"`));
  });

  const bound = (made: ResponsesRig) => ({ app: made.app, send: (body: Json) => made.send(body) });
});
