import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { parsedItems } from "../../../../http/responses/request/item-texts.ts";
import { done, failure, finish, hello, type Script, text } from "../../../fixtures/fakes/fake-inference.ts";
import { memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { errorOf, type Json, ResponsesRig, resource, streamed } from "./responses-rig.ts";

const input = "hi";
const absent = `resp_${"0".repeat(32)}`;

/** Script of a generation that outputs one text, then waits longer than any test. */
const slow: Script = () => [[text("Hel")], { waitMs: 60_000 }, [text("lo"), finish(), done]];
const soon: Script = () => [[text("Hel")], { waitMs: 5 }, [text("lo")], { waitMs: 5 }, [finish(), done]];
async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await sleep(1);
  assert.ok(condition());
}

describe("a background response", () => {
  it("is queued at once, continues without its client, and can be retrieved at its end", async () => {
    const rig = new ResponsesRig(soon);
    const queued = await rig.create({ input, background: true });
    assert.deepEqual([queued.status, queued.output, queued.background], ["queued", [], true]);
    const response = await rig.ended(queued.id);
    assert.deepEqual([response.status, response.output_text], ["completed", "Hello"]);
  });

  it("fails if the engine refuses it", async () => {
    const rig = new ResponsesRig(() => [[failure("queue_full", "no room")]]);
    const { id } = await rig.create({ input, background: true });
    const { status, error } = await rig.ended(id);
    assert.deepEqual([status, error.code, error.message], ["failed", "queue_full", "no room"]);
  });

  it("can be cancelled, which stops the engine, but not after its end or in the foreground", async () => {
    const rig = new ResponsesRig(slow);
    const { id } = await rig.create({ input, background: true });
    await until(() => rig.inference.lastRun?.batchCount === 1);
    for (let i = 0; i < 2; i++) {
      const reply = await rig.cancel(id);
      const { status, output_text } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, status, output_text], [200, "cancelled", "Hel"]);
    }
    await until(() => rig.inference.lastRun.state === "cancelled");
    assert.equal((await rig.fetch(id)).status, "cancelled");
    rig.inference.script = hello;
    for (const { id: ended } of [
      await rig.create({ input }),
      await rig.ended((await rig.create({ input, background: true })).id),
    ]) {
      assert.deepEqual(errorOf(await rig.cancel(ended)), [404, "not_found", "response_id"]);
    }
  });

  it("is replayed without characters that end a line in Python", async () => {
    const rig = new ResponsesRig(() => [[text("a\u2028b"), finish(), done]]);
    const { response } = streamed(await rig.send({ input, background: true, stream: true }));
    await rig.ended(response.id);
    const replay = await rig.get(response.id, "stream=true");
    assert.ok(replay.body.includes("a\\u2028b") && !replay.body.includes("\u2028"), replay.body);
  });

  it("streams to its creator, and to others from any event, while it runs and afterwards", async () => {
    const rig = new ResponsesRig(soon);
    const first = rig.send({ input, background: true, stream: true });
    await until(() => rig.inference.runs.length === 1);
    const { events, types, response } = streamed(await first);
    assert.deepEqual(types.slice(0, 3), ["created", "queued", "in_progress"]);
    assert.equal(response.output_text, "Hello");
    const again = await rig.get(response.id, "stream=true");
    assert.deepEqual(streamed(again).events, events);
    for (const after of [0, 4, events.length - 1, 1e6]) {
      const { body } = await rig.get(response.id, `stream=true&starting_after=${after}`);
      const rest = body.split("\n\n").filter((block) => block.startsWith("event:"));
      assert.deepEqual(
        rest.map((block) => JSON.parse(block.split("\ndata: ")[1] ?? "")),
        events.slice(after + 1),
      );
      assert.ok(body.endsWith("data: [DONE]\n\n"));
    }
  });

  it("continues when the reader of its stream leaves and returns", async () => {
    const rig = new ResponsesRig(() => [[text("Hel")], { waitMs: 20 }, [text("lo"), finish(), done]]);
    const leaving = new AbortController();
    const left = rig.send({ input, background: true, stream: true }, leaving.signal);
    await until(() => rig.inference.lastRun?.batchCount === 1);
    leaving.abort();
    const { body } = await left;
    const id = /resp_[0-9a-f]{32}/.exec(body)?.[0] ?? "";
    assert.equal(streamed(await rig.get(id, "stream=true")).response.output_text, "Hello");
    assert.equal((await rig.fetch(id)).status, "completed");
  });

  it("ends attached streams with one last event on cancel and delete", async () => {
    for (const end of ["cancel", "delete"] as const) {
      const rig = new ResponsesRig(slow);
      const attached = rig.send({ input, background: true, stream: true });
      await until(() => rig.inference.lastRun?.batchCount === 1);
      const id = rig.lastId;
      const reply = await rig[end](id);
      assert.equal(reply.status, 200);
      const { types, response } = streamed(await attached);
      assert.deepEqual([types.at(-1), response.status], ["incomplete", "cancelled"]);
      assert.deepEqual(response.incomplete_details, { reason: "interrupted" });
      assert.equal((await rig.get(id)).status, end === "cancel" ? 200 : 404);
      await until(() => rig.inference.lastRun.state === "cancelled");
    }
  });

  it("has no replayable stream without stream: true", async () => {
    const rig = new ResponsesRig();
    for (const body of [{ input }, { input, background: true }]) {
      const { id } = await rig.create(body);
      assert.deepEqual(errorOf(await rig.get(id, "stream=true")), [404, "not_found", "stream"]);
    }
    assert.equal((await rig.get(absent, "stream=true&starting_after=x")).status, 400);
  });

  it("retains nothing of its exchange", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const rig = new ResponsesRig(slow);
    const send = async (): Promise<WeakRef<AbortSignal>> => {
      const { signal } = new AbortController();
      resource(await rig.send({ input, background: true }, signal));
      return new WeakRef(signal);
    };
    const signal = await send();
    await until(() => rig.inference.lastRun?.batchCount === 1);
    // A newly created weak reference keeps its target alive until the current turn of the event loop ends.
    await sleep(1);
    collect();
    assert.equal(signal.deref(), undefined);
    rig.app.endBackground();
    await rig.app.settled();
  });

  it("streams its first events to its creator even with long instructions", async () => {
    const rig = new ResponsesRig(soon, { store: memoryResponses({ maxBytes: 2 ** 26, maxEntryBytes: 2 ** 25 }) });
    const instructions = "i".repeat(3 * 2 ** 20);
    const { types } = await rig.stream({ input, instructions, background: true });
    assert.deepEqual(types.slice(0, 3), ["created", "queued", "in_progress"]);
  });

  it("is identical when streamed, stored, retrieved and replayed with logprobs of any length", async () => {
    const logprob = (token: string) => ({ token, bytes: [...Buffer.from(token)], logprob: -0.5 });
    const top = Array.from({ length: 20 }, (_, i) => logprob(`é${i}`));
    const word = Array.from({ length: 100 }, (_, i) => ({ ...logprob(`w${i}`), top }));
    const store = memoryResponses({ maxBytes: 2 ** 26, maxEntryBytes: 2 ** 25 });
    for (const [name, words] of [
      ["few", [word.slice(0, 2)]],
      ["many in one event", [[...word, ...word, ...word]]],
      ["many in many events", Array.from({ length: 30 }, () => word.slice(0, 20))],
    ] as const) {
      const rig = new ResponsesRig(() => [...words.map((some) => [text("x", 0, some)]), [finish(), done]], { store });
      const asked = { input, include: ["message.output_text.logprobs"], top_logprobs: 20 };
      const first = await rig.stream({ ...asked, background: true });
      const { id, output } = first.response;
      const count = words.flat().length;
      assert.deepEqual([name, output[0].content[0].logprobs.length], [name, count]);
      assert.deepEqual(await rig.ended(id), first.response);
      assert.deepEqual(streamed(await rig.get(id, "stream=true")).events, first.events);
      const {
        created_at,
        completed_at,
        id: _,
        output: [item],
        ...whole
      } = await rig.create(asked);
      assert.deepEqual(item.content, output[0].content);
      assert.ok(completed_at >= created_at && whole.status === "completed");
      const waiting = await rig.stream(asked);
      assert.deepEqual(waiting.response.output[0].content, output[0].content);
      assert.deepEqual(await rig.fetch(waiting.response.id), waiting.response);
      // The history of a conversation does not contain logprobs.
      const [turn] = await store.history(id);
      assert.deepEqual(parsedItems<Json>(turn!.items).at(-1)!.content[0].logprobs, []);
    }
  });

  it("returns its logprobs while it runs", async () => {
    const token = { token: "Hel", bytes: [72, 101, 108], logprob: -0.5 };
    const rig = new ResponsesRig(() => [
      [text("Hel", 0, [{ ...token, top: [token] }])],
      { waitMs: 60_000 },
      [finish(), done],
    ]);
    const { id } = await rig.create({ input, background: true });
    await until(() => rig.inference.lastRun?.batchCount === 1);
    const { status, output } = await rig.fetch(id);
    assert.deepEqual([status, output[0].content[0].logprobs], ["in_progress", [{ ...token, top_logprobs: [token] }]]);
    const cancelled = resource(await rig.cancel(id));
    assert.deepEqual(cancelled.output[0].content, output[0].content);
  });

  it("is refused at the limit of background responses, and without store", async () => {
    const rig = new ResponsesRig(slow, { maxBackgroundResponses: 2 });
    const ids = [];
    for (let i = 0; i < 2; i++) ids.push((await rig.create({ input, background: true })).id);
    assert.deepEqual(errorOf(await rig.send({ input, background: true })), [429, "queue_full", null]);
    await rig.cancel(ids[0]);
    assert.equal((await rig.create({ input, background: true })).status, "queued");
    assert.deepEqual(errorOf(await rig.send({ input, background: true, store: false })), [
      400,
      "invalid_value",
      "background",
    ]);
    rig.app.endBackground();
    await rig.app.settled();
  });

  it("is stored as interrupted before the server stops", async () => {
    const rig = new ResponsesRig(slow);
    const { id } = await rig.create({ input, background: true });
    rig.app.endBackground();
    await rig.app.settled();
    const { status, incomplete_details } = await rig.fetch(id);
    assert.deepEqual([status, incomplete_details], ["incomplete", { reason: "interrupted" }]);
    await until(() => rig.inference.lastRun.state === "cancelled");
    assert.equal((await rig.send({ input, background: true })).status, 503);
  });

  it("returns an error to its waiting client when deleted", async () => {
    const rig = new ResponsesRig(slow);
    const streaming = rig.send({ input, stream: true });
    await until(() => rig.inference.lastRun?.batchCount === 1);
    await rig.delete(rig.lastId);
    assert.equal((await rig.get(rig.lastId)).status, 404);
    const { types, response } = streamed(await streaming);
    assert.deepEqual([types.at(-1), response.error.code], ["failed", "cancelled"]);
    assert.equal((await rig.get(response.id)).status, 404);
  });
});
