import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { StoredResponse } from "../../../../actors/api/stored-responses.ts";
import type { KeptHead } from "../../../../actors/state/kept-head.ts";
import { ResponseStore } from "../../../../actors/state/response-store.ts";
import { itemTexts } from "../../../../http/responses/request/item-texts.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import type { StoreLimits } from "../../../../runtime/store/store.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

const limits: StoreLimits = { maxEntries: 100, maxBytes: 1e9, maxEntryBytes: 5e7, maxAgeMs: 1e9 };
const largeBytes = 2 ** 20;

/** Store that counts the bytes read in each turn of the event loop. */
class WatchedStore extends TableStore<KeptHead> {
  mostInTurn = 0;
  #inTurn = 0;

  override read(part: number, from: number, to: number): Uint8Array | null {
    if (this.#inTurn === 0) {
      setImmediate(() => {
        this.#inTurn = 0;
      });
    }
    this.#inTurn += to - from;
    this.mostInTurn = Math.max(this.mostInTurn, this.#inTurn);
    return super.read(part, from, to);
  }
}

function stored(id: string, bytes: number, rest: Partial<StoredResponse> = {}): StoredResponse {
  return {
    id,
    client: "crowd",
    previousId: null,
    createdAt: 1,
    model: "m",
    inputStart: null,
    outputStart: null,
    isRunning: false,
    status: "completed",
    isBackground: false,
    body: Buffer.from("{"),
    interrupted: null,
    settings: Buffer.from("}"),
    input: itemTexts([{ id, text: "x".repeat(bytes) }]),
    output: itemTexts([]),
    events: null,
    ...rest,
  };
}

describe("conversations read at the same time", () => {
  it("are read one response in a turn of the event loop, and another client's before most of a crowd's", async () => {
    const store = new WatchedStore(new MemoryTables(), limits);
    const keeper = new ResponseStore(store);
    await keeper.add(stored("first", largeBytes));
    await keeper.add(stored("second", largeBytes, { previousId: "first" }));
    await keeper.add(stored("small", 10, { client: "bystander" }));
    const ended: string[] = [];
    const read = async (id: string): Promise<number> => {
      const turns = await keeper.history(id);
      ended.push(id);
      return turns.reduce((sum, { items }) => sum + items.texts.byteLength, 0);
    };
    const crowd = Array.from({ length: 10 }, () => read("second"));
    const bystander = await read("small");
    const lengths = await Promise.all(crowd);
    assert.ok(bystander < 100);
    assert.ok(lengths.every((length) => length > 2 * largeBytes && length < 2 * largeBytes + 1000));
    assert.ok(store.mostInTurn < 1.5 * largeBytes, `${store.mostInTurn} bytes in one turn`);
    assert.ok(ended.indexOf("small") <= 3, String(ended));
    await keeper.onStop();
  });

  it("report a missing response at once, while others are read", async () => {
    const keeper = new ResponseStore(new TableStore<KeptHead>(new MemoryTables(), limits));
    await keeper.add(stored("a", largeBytes));
    const reading = keeper.history("a");
    await assert.rejects(keeper.history("none"), /'none' not found/);
    assert.equal((await reading).length, 1);
    await keeper.onStop();
  });
});

describe("the list of responses", () => {
  it("has responses of an earlier version of the server, but no tombstones", async () => {
    const values = new TableStore<KeptHead>(new MemoryTables(), limits);
    const store = new ResponseStore(values);
    for (const id of ["old", "gone", "new"]) {
      await store.add(stored(id, 1, { createdAt: 7, inputStart: "in", outputStart: "out" }));
      await sleep(2);
    }
    const old = values.get("old")!;
    const { createdAt, model, inputStart, outputStart, ...head } = old.head;
    await values.compareAndSet("old", old.version, { ...old, head });
    const gone = values.get("gone")!;
    await values.compareAndSet("gone", gone.version, { ...gone, head: { ...gone.head, isDeleted: true } });
    const page = await store.list({ after: null, limit: 1 });
    const newest = { id: "new", createdAt: 7, model: "m", inputStart: "in", outputStart: "out" };
    const facts = { status: "completed", isBackground: false, runner: null };
    assert.deepEqual(page, { responses: [{ ...newest, ...facts }], hasMore: true });
    const nothing = { model: null, inputStart: null, outputStart: null };
    assert.deepEqual(await store.list({ after: "new", limit: 1 }), {
      responses: [{ id: "old", createdAt: Math.floor(old.born / 1000), ...nothing, ...facts }],
      hasMore: false,
    });
    assert.equal(await store.list({ after: "gone", limit: 1 }), null);
  });
});
