import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openContent } from "../../../../actors/api/sealed-content.ts";
import type { KeptHead } from "../../../../actors/state/kept-head.ts";
import { ResponseStore } from "../../../../actors/state/response-store.ts";
import type { ChatMessage } from "../../../../engines/generation.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";
import { done, finish, hello, type Script, text, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { memoryResponses, testLimits } from "../../../fixtures/fakes/memory-responses.ts";
import { errorOf, type Json, ResponsesRig } from "./responses-rig.ts";

const input = "hi";
const absent = `resp_${"0".repeat(32)}`;

/** Script of a generation that outputs one text, then waits longer than any test. */
const slow: Script = () => [[text("Hel")], { waitMs: 60_000 }, [text("lo"), finish(), done]];
const contents = (rig: ResponsesRig): readonly string[] => {
  const { prompt } = rig.inference.lastRun.request;
  return prompt.kind === "chat" ? prompt.messages.map(({ role, content }) => `${role}: ${content}`) : [];
};

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await sleep(1);
  assert.ok(condition());
}

describe("a stored response", () => {
  it("is retrieved as returned, streamed or not, until it is deleted", async () => {
    const rig = new ResponsesRig();
    for (const response of [await rig.create({ input }), (await rig.stream({ input })).response]) {
      assert.deepEqual(await rig.fetch(response.id), response);
      const deleted = await rig.delete(response.id);
      assert.deepEqual(
        [deleted.status, JSON.parse(deleted.body)],
        [200, { id: response.id, object: "response.deleted", deleted: true }],
      );
      for (const reply of [await rig.get(response.id), await rig.delete(response.id), await rig.cancel(response.id)]) {
        assert.deepEqual(errorOf(reply), [404, "not_found", "response_id"]);
      }
    }
  });

  it("is not stored with store: false, nor found by an invalid id", async () => {
    const rig = new ResponsesRig();
    const { response } = await rig.stream({ input, store: false });
    for (const id of [
      response.id,
      (await rig.create({ input, store: false })).id,
      "x",
      "__proto__",
      "%00".repeat(999),
    ]) {
      assert.equal((await rig.get(id)).status, 404);
    }
    assert.equal((await rig.send({ input, previous_response_id: response.id })).status, 404);
  });

  it("can be continued with its conversation, but not its instructions", async () => {
    const rig = new ResponsesRig();
    const first = await rig.create({ input: "one", instructions: "Be brief." });
    const second = await rig.create({ input: "two", previous_response_id: first.id });
    rig.inference.script = () => [[...toolCall("f", ["{}"]), finish("tool_calls"), done]];
    const tools = [{ type: "function", name: "f" }];
    const third = await rig.create({ input: "three", previous_response_id: second.id, tools });
    rig.inference.script = hello;
    const result = { type: "function_call_output", call_id: "call_0", output: [{ type: "input_text", text: "5" }] };
    await rig.create({ input: [result], previous_response_id: third.id, instructions: "Be long." });
    assert.deepEqual(contents(rig), [
      "system: Be long.",
      "user: one",
      "assistant: Hello world",
      "user: two",
      "assistant: Hello world",
      "user: three",
      "assistant: ",
      "tool: 5",
    ]);
    assert.equal(second.previous_response_id, first.id);
    await rig.delete(first.id);
    const reply = await rig.send({ input, previous_response_id: third.id });
    assert.deepEqual(errorOf(reply), [404, "previous_response_not_found", "previous_response_id"]);
    assert.match(reply.body, new RegExp(first.id));
  });

  it("is the same if text workers parse a long request or conversation", async () => {
    const rig = new ResponsesRig();
    const asked = (): readonly ChatMessage[] => {
      const { prompt, tools } = rig.inference.lastRun.request;
      assert.ok(prompt.kind === "sealed" && tools === null, "a text worker read it");
      const opened = openContent(prompt).prompt;
      assert.ok(opened.kind === "chat");
      return opened.messages;
    };
    const long = "é".repeat(50_000);
    const first = await rig.create({ input: long, instructions: "Be brief." });
    assert.equal(first.instructions, "Be brief.");
    assert.deepEqual(
      asked().map(({ role, content }) => [role, content]),
      [
        ["system", "Be brief."],
        ["user", long],
      ],
    );
    const tools = [{ type: "function", name: "f", parameters: { type: "object", description: long } }];
    const second = await rig.create({ input: "and?", previous_response_id: first.id, tools });
    assert.deepEqual(second.tools[0].parameters, tools[0]!.parameters);
    assert.deepEqual(
      asked().map(({ role, content }) => [role, content]),
      [
        ["user", long],
        ["assistant", "Hello world"],
        ["user", "and?"],
      ],
    );
    const [{ id }] = JSON.parse((await rig.inputItems(first.id)).body).data;
    await rig.create({
      input: [
        { type: "item_reference", id },
        { role: "user", content: "again" },
      ],
      instructions: "Go.",
    });
    assert.deepEqual(
      asked().map(({ role, content }) => [role, content]),
      [
        ["system", "Go."],
        ["user", long],
        ["user", "again"],
      ],
    );
    assert.deepEqual(await rig.fetch(second.id), second);
  });

  it("refuses to continue an unknown or running response", async () => {
    const rig = new ResponsesRig(slow);
    for (const id of [absent, "nonsense"]) {
      assert.deepEqual(errorOf(await rig.send({ input, previous_response_id: id })), [
        404,
        "previous_response_not_found",
        "previous_response_id",
      ]);
    }
    const { id } = await rig.create({ input, background: true });
    assert.deepEqual(errorOf(await rig.send({ input, previous_response_id: id })), [
      409,
      "conflict",
      "previous_response_id",
    ]);
    await rig.cancel(id);
  });

  it("lists its input items in pages, and its items can be referenced", async () => {
    const rig = new ResponsesRig();
    const { id, output } = await rig.create({
      input: [
        { role: "user", content: "one" },
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "two" }], id: "msg_mine" },
        { role: "developer", content: "three" },
      ],
    });
    const list = async (query: string): Promise<Json> => JSON.parse((await rig.inputItems(id, query)).body);
    const all = await list("order=asc");
    assert.deepEqual(
      all.data.map((item: Json) => [item.type, item.role, item.content[0].type, item.content[0].text]),
      [
        ["message", "user", "input_text", "one"],
        ["message", "assistant", "output_text", "two"],
        ["message", "developer", "input_text", "three"],
      ],
    );
    assert.deepEqual([all.first_id, all.last_id, all.has_more], [all.data[0].id, all.data[2].id, false]);
    const page = await list("limit=1&after=msg_mine");
    assert.deepEqual([page.data[0].id, page.has_more], [all.data[0].id, false]);
    assert.equal((await list("limit=1")).has_more, true);
    for (const query of ["limit=0", "limit=101", "order=up", "after=msg_x"]) {
      assert.equal((await rig.inputItems(id, query)).status, 400, query);
    }
    const refer = (to: string) => ({ type: "item_reference", id: to });
    await rig.create({ input: [refer(all.data[0].id), refer(output[0].id), { role: "user", content: "four" }] });
    assert.deepEqual(contents(rig), ["user: one", "assistant: Hello world", "user: four"]);
    const missing = await rig.send({ input: [refer(output[0].id), refer("msg_nowhere")] });
    assert.deepEqual(errorOf(missing), [404, "not_found", "input[1].id"]);
  });

  it("is stored as incomplete when its client disconnects, unless no client knows its id", async () => {
    const rig = new ResponsesRig(slow);
    const hangUp = new AbortController();
    const streaming = rig.send({ input, stream: true }, hangUp.signal);
    await until(() => rig.addedIds.length === 1);
    assert.equal((await rig.fetch(rig.lastId)).status, "in_progress");
    hangUp.abort();
    await streaming;
    const { status, incomplete_details, output_text } = await rig.ended(rig.lastId);
    assert.equal(rig.inference.lastRun.state, "cancelled");
    assert.deepEqual([status, incomplete_details, output_text], ["incomplete", { reason: "interrupted" }, "Hel"]);

    const silent = new AbortController();
    void rig.send({ input }, silent.signal);
    await until(() => rig.inference.runs.length === 2);
    silent.abort();
    await until(() => rig.inference.lastRun.state === "cancelled");
    await sleep(1);
    assert.equal(rig.addedIds.length, 1);
  });

  it("is retrieved as interrupted if its process has ended", async () => {
    const values = new TableStore<KeptHead>(new MemoryTables(), testLimits);
    const rig = new ResponsesRig(slow, { store: new ResponseStore(values) });
    const { id } = await rig.create({ input, background: true });
    // Changes the owner to a process id that no process has.
    const kept = values.get(id)!;
    await values.compareAndSet(id, kept.version, { ...kept, head: { ...kept.head, owner: "999999999:1" } });
    const later = new ResponsesRig(hello, { store: new ResponseStore(values) });
    const { status, incomplete_details } = await later.fetch(id);
    assert.deepEqual([status, incomplete_details], ["incomplete", { reason: "interrupted" }]);
    await later.create({ input, previous_response_id: id });
    rig.app.endBackground();
    await rig.app.settled();
  });

  it("is returned although it cannot be stored, which the log reports", async () => {
    const broken = memoryResponses();
    broken.add = () => Promise.reject(new Error("disk full"));
    const rig = new ResponsesRig(hello, { store: broken });
    assert.equal((await rig.create({ input })).status, "completed");
    assert.equal((await rig.stream({ input })).response.status, "completed");
    await until(() => rig.log.lines.filter(({ level }) => level === "error").length > 1);
    assert.equal((await rig.send({ input, background: true })).status, 500);
    assert.equal(rig.inference.runs.length, 2);
    await rig.app.settled();
  });
});
