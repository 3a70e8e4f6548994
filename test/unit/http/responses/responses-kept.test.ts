import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { eventsAfter } from "../../../../http/responses/stored/kept-bytes.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, finish, hello, type Script, text } from "../../../fixtures/fakes/fake-inference.ts";
import { altered, memoryResponses } from "../../../fixtures/fakes/memory-responses.ts";
import { errorOf, type Json, ResponsesRig, whole } from "./responses-rig.ts";

const roomy = { maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26 };
const slow: Script = () => [[text("Hel")], { waitMs: 60_000 }, [text("lo"), finish(), done]];
const event = (number: number): string => `event: e\ndata: ${"x".repeat(number % 5)}\n\n`;

async function* slices(bytes: Buffer, length: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

const refer = (id: string) => ({ type: "item_reference", id });
const long = "é".repeat(100_000);

describe("stored events", () => {
  it("are read from any number, for any slice boundary", async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(20), fc.nat(25), fc.integer({ min: 1, max: 40 }), async (count, skipped, length) => {
        const events = Array.from({ length: count }, (_, i) => event(i));
        const read = await whole(eventsAfter(slices(Buffer.from(events.join("")), length), skipped));
        assert.equal(read, `${events.slice(skipped).join("")}data: [DONE]\n\n`);
      }),
    );
  });
});

/** Returns all byte arrays in a value. */
function bytesIn(value: unknown): readonly Uint8Array[] {
  if (value instanceof Uint8Array) return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(bytesIn) : [];
}

describe("a short stored response", () => {
  it("is sent to the state thread without the rest of the buffers in which it was written", async () => {
    const store = memoryResponses();
    const sent: Uint8Array[] = [];
    const rig = new ResponsesRig(hello, {
      store: altered(store, {
        add(response) {
          sent.push(...bytesIn(response));
          return store.add(response);
        },
        update(update) {
          sent.push(...bytesIn(update));
          return store.update(update);
        },
      }),
    });
    await rig.create({ input: "hi" });
    await rig.stream({ input: "hi", background: true });
    await rig.ended(rig.lastId);
    const excess = sent.filter(({ byteLength, buffer }) => buffer.byteLength > byteLength);
    assert.deepEqual([sent.length > 10, excess.length], [true, 0]);
  });
});

describe("a large stored response", () => {
  it("is returned unchanged, body and items, in slices", async () => {
    const store = memoryResponses(roomy);
    let largest = 0;
    const watched = altered(store, {
      async slice(request) {
        const slice = await store.slice(request);
        largest = Math.max(largest, slice?.byteLength ?? 0);
        return slice;
      },
    });
    const rig = new ResponsesRig(hello, { store: watched });
    const input = Array.from({ length: 30 }, (_, i) => ({ role: "user", content: `${i} ${long}` }));
    const response = await rig.create({ input, instructions: long });
    assert.deepEqual(await rig.fetch(response.id), response);
    for (const order of ["asc", "desc"]) {
      const page: Json = JSON.parse((await rig.inputItems(response.id, `order=${order}&limit=30`)).body);
      const texts = page.data.map((item: Json) => item.content[0].text);
      const sent = input.map(({ content }) => content);
      assert.deepEqual(texts, order === "asc" ? sent : sent.toReversed());
      assert.deepEqual([page.first_id, page.last_id, page.has_more], [page.data[0].id, page.data[29].id, false]);
    }
    assert.equal(largest, 256 * 1024);
  });

  it("has the same long settings while it runs as at its end", async () => {
    const rig = new ResponsesRig(slow, { store: memoryResponses(roomy) });
    const { id, instructions } = await rig.create({ input: "hi", instructions: long, background: true });
    assert.equal(instructions, long);
    assert.equal((await rig.fetch(id)).instructions, long);
    const cancelled = JSON.parse((await rig.cancel(id)).body);
    assert.deepEqual([cancelled.status, cancelled.instructions], ["cancelled", long]);
    assert.deepEqual(await rig.fetch(id), cancelled);
    assert.deepEqual(JSON.parse((await rig.cancel(id)).body), cancelled);
  });

  it("is read again if it changes before the first slice, and truncated if deleted later", async () => {
    const store = memoryResponses(roomy);
    let meanwhile: (() => Promise<unknown>) | null = null;
    const rig = new ResponsesRig(hello, {
      store: altered(store, {
        async slice(request) {
          const change = meanwhile;
          meanwhile = null;
          await change?.();
          return await store.slice(request);
        },
      }),
    });
    const response = await rig.create({ input: "hi", instructions: long });
    meanwhile = async () => {
      const old = await store.find(response.id);
      const body = Buffer.from(`{"id":"${response.id}","status":"changed"`);
      const output = { ids: [], texts: new Uint8Array(0), ends: new Uint32Array(0) };
      await store.update({
        ...old!,
        isRunning: false,
        body,
        interrupted: null,
        output,
        outputStart: null,
        events: null,
      });
    };
    assert.equal(JSON.parse((await rig.get(response.id)).body).status, "changed");
    meanwhile = () => store.delete(response.id);
    assert.deepEqual(errorOf(await rig.get(response.id)), [404, "not_found", "response_id"]);
  });

  it("can be referenced up to the bytes of a body", async () => {
    const rig = new ResponsesRig(hello, { store: memoryResponses(roomy) });
    const content = "x".repeat(6 * 2 ** 20);
    const { id } = await rig.create({
      input: [
        { role: "user", content, id: "mine" },
        { role: "user", content: "two" },
      ],
    });
    const items: Json = JSON.parse((await rig.inputItems(id)).body);
    const [last] = items.data;
    assert.equal(items.last_id, "mine");
    assert.equal(JSON.parse((await rig.send({ input: [refer(last.id), refer(last.id)] })).body).status, "completed");
    const whose = await rig.create({ input: [{ role: "user", content }] });
    const [large] = JSON.parse((await rig.inputItems(whose.id)).body).data;
    const reply = await rig.send({ input: Array.from({ length: 9 }, () => refer(large.id)) });
    assert.deepEqual(errorOf(reply), [400, "invalid_value", "input[8]"]);
  });

  it("is refused with its error if it cannot be stored for the background, or read", async () => {
    const full = (): Promise<never> => Promise.reject(new ServerError("storage_unavailable", "the disk is full"));
    const store = memoryResponses();
    const calls = { add: full, find: full, delete: full, page: full, item: full, history: full };
    const rig = new ResponsesRig(hello, { store: altered(store, calls) });
    const id = `resp_${"0".repeat(32)}`;
    for (const reply of [
      await rig.send({ input: "hi", background: true }),
      await rig.get(id),
      await rig.delete(id),
      await rig.inputItems(id),
      await rig.send({ input: "hi", previous_response_id: id }),
      await rig.send({ input: [refer(`msg_${"0".repeat(32)}_0`)] }),
    ]) {
      assert.deepEqual(errorOf(reply), [503, "storage_unavailable", null]);
      assert.ok(Number(reply.headers["retry-after"]) > 0);
    }
    assert.equal((await rig.create({ input: "hi" })).status, "completed");
    await rig.app.settled();
  });
});
