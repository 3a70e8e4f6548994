import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StreamHub } from "../../../../runtime/actor/stream.ts";
import type { WriterHooks } from "../../../../runtime/actor/stream-ends.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";

const options = { channel: "streams", window: 4 };
const noHooks: WriterHooks = { onCancel: () => {}, onDrain: () => {} };

/** Returns two hubs over a real port pair. `messages` counts the messages of the writing side. */
function createHubs() {
  const { left, right } = portPair();
  const counter = { messages: 0 };
  const send = left.send.bind(left);
  left.send = (channel, payload, transfer) => {
    counter.messages++;
    return send(channel, payload, transfer);
  };
  return { here: new StreamHub(left, options), there: new StreamHub(right, options), left, right, counter };
}

/** Runs the event loop until written items have arrived and the writer has got their credit back. */
async function crossed(): Promise<void> {
  for (let i = 0; i < 6; i++) await settled();
}

async function readAll<T>(reader: AsyncIterable<readonly T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const batch of reader) items.push(...batch);
  return items;
}

describe("a stream", () => {
  it("yields all buffered items at once, in order, and ends", async () => {
    const { here, there, left } = createHubs();
    const reader = there.reader<string>(1);
    const writer = here.writer<string>(1, noHooks);
    for (const letter of "abc") writer.write(letter);
    writer.end();
    await crossed();
    const batches: (readonly string[])[] = [];
    for await (const batch of reader) batches.push(batch);
    assert.deepEqual(batches, [["a", "b", "c"]]);
    left.close();
  });

  it("write returns false when the window is full, accepts as many items again, and then refuses", async () => {
    const { here, there, left } = createHubs();
    const reader = there.reader<number>(1);
    const writer = here.writer<number>(1, noHooks);
    const answers = [0, 1, 2, 3, 4, 5, 6, 7].map((item) => writer.write(item));
    assert.deepEqual(answers, [true, true, true, false, false, false, false, false]);
    assert.throws(() => writer.write(8), { code: "reader_stalled" });
    writer.end();
    assert.deepEqual(await readAll(reader), [0, 1, 2, 3, 4, 5, 6, 7]);
    left.close();
  });

  it("drains only when the consumer has finished its items", async () => {
    const { here, there, left } = createHubs();
    let drainCount = 0;
    const reader = there.reader<number>(1)[Symbol.asyncIterator]();
    const writer = here.writer<number>(1, { onCancel: () => {}, onDrain: () => void drainCount++ });
    for (let i = 0; i < 4; i++) writer.write(i);
    await crossed();
    assert.equal(drainCount, 0);
    await reader.next(); // The consumer now holds the items.
    await crossed();
    assert.equal(drainCount, 0);
    const waiting = reader.next();
    await crossed();
    assert.equal(drainCount, 1);
    assert.equal(writer.write(4), true);
    assert.deepEqual(await waiting, { done: false, value: [4] });
    left.close();
  });

  it("never stalls: a writer that stops at false and waits for onDrain delivers all items", async () => {
    for (const window of [1, 2, 3, 7]) {
      const { left, right } = portPair();
      const here = new StreamHub(left, { channel: "s", window });
      const there = new StreamHub(right, { channel: "s", window });
      const reader = there.reader<number>(1);
      let next = 0;
      const fill = () => {
        while (next < 50) if (!writer.write(next++)) return;
        writer.end();
      };
      const writer = here.writer<number>(1, { onCancel: () => {}, onDrain: fill });
      fill();
      assert.equal((await readAll(reader)).length, 50);
      left.close();
    }
  });

  it("tells its writer when the reader cancels, once, and drops later items", async () => {
    const { here, there, left } = createHubs();
    let cancelCount = 0;
    const reader = there.reader<number>(1);
    const writer = here.writer<number>(1, { onCancel: () => void cancelCount++, onDrain: () => {} });
    writer.write(1);
    const reading = readAll(reader);
    reader.cancel();
    reader.cancel();
    await crossed();
    assert.equal(cancelCount, 1);
    assert.equal(writer.write(2), false);
    writer.end();
    assert.deepEqual(await reading, []);
    left.close();
    await crossed();
    assert.equal(cancelCount, 1);
  });

  it("is sent together with all items written in the same turn, at any promise depth", async () => {
    const { here, there, left, counter } = createHubs();
    const readers = Array.from({ length: 32 }, (_, id) => there.reader<number>(id));
    const writers = readers.map((_, id) => here.writer<number>(id, noHooks));
    await Promise.all(
      writers.map(async (writer, id) => {
        for (let depth = 0; depth < id; depth++) await null;
        writer.write(id);
        writer.write(id + 100);
        writer.end();
      }),
    );
    const items = await Promise.all(readers.map(readAll));
    assert.equal(counter.messages, 1);
    assert.deepEqual(items[31], [31, 131]);
    left.close();
  });

  it("yields the arrived items when the peer goes, then throws peer_gone; its writers are cancelled", async () => {
    const { here, there, left, right } = createHubs();
    const reader = there.reader<number>(1);
    let isCancelled = false;
    there.writer<number>(2, {
      onCancel: () => {
        isCancelled = true;
      },
      onDrain: () => {},
    });
    here.writer<number>(1, noHooks).write(1);
    await crossed();
    left.close();
    await right.exit;
    const iterator = reader[Symbol.asyncIterator]();
    assert.deepEqual(await iterator.next(), { done: false, value: [1] });
    await assert.rejects(iterator.next(), { code: "peer_gone", message: /"left" is gone/ });
    assert.ok(isCancelled);
    await assert.rejects(readAll(there.reader(3)), { code: "peer_gone" });
  });
});
