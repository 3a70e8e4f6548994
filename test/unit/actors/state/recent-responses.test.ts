// Recent responses after a failover of Redis: what a replica has stored shortly before is written again. Uses a real server
// that loses the data.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse } from "../../../../actors/api/stored-responses.ts";
import type { KeptHead } from "../../../../actors/state/kept-head.ts";
import { ResponseStore } from "../../../../actors/state/response-store.ts";
import { RecentResponses } from "../../../../actors/state/shared/recent-responses.ts";
import { SharedState } from "../../../../actors/state/shared/shared-state.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
import { Stores } from "../../../../runtime/store/stores.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";
import { startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

const limits = { maxEntries: 1000, maxBytes: 2 ** 24, maxEntryBytes: 2 ** 20, maxAgeMs: 1e9 };
const none = { ids: [], texts: new Uint8Array(0), ends: new Uint32Array(0) };

function idOf(number: number): string {
  return `resp_${String(number).padStart(32, "0")}`;
}

function running(number: number, bytes = 10): StoredResponse {
  return {
    ...{ id: idOf(number), isRunning: true, status: "in_progress", body: Buffer.alloc(bytes, "b") },
    ...{ interrupted: Buffer.from("interrupted"), output: none, outputStart: null, events: null, client: "client" },
    ...{ previousId: null, isBackground: true, createdAt: 7, model: "m", inputStart: null },
    ...{ settings: Buffer.from("{}"), input: none },
  };
}

function completed(number: number): ResponseUpdate {
  const body = Buffer.from("whole");
  return { ...running(number), isRunning: false, status: "completed", body, interrupted: null };
}

describe("responses that Redis has lost", { skip: lacksRedis }, () => {
  it("are written again, and deletions repeated, when another server has taken its place", async (t) => {
    const redis = await startRedis();
    const reports: unknown[] = [];
    const shared = await SharedState.open({ url: redis.url, replica: "replica_a", leaseMs: 10_000 }, (report) => {
      if (report.kind !== "health") reports.push(report);
    });
    const store = new ResponseStore(shared.store("responses", limits), shared.owners, null, new RecentResponses());
    let counts = {};
    let failures = 1;
    shared.onReplaced(async () => {
      counts = await store.restore();
      if (failures-- > 0) throw new Error("one more loss");
    });
    const losses: boolean[] = [];
    shared.onLoss((isLost) => losses.push(isLost));
    t.after(async () => {
      await shared.behaviour().onStop?.();
      await redis.stop();
    });
    const statusOf = async (number: number) => (await store.find(idOf(number)))?.status;
    await store.add(running(1));
    await store.add(running(2));
    // Up to here, all data is saved to disk. Later writes are lost.
    const connection = await RedisConnection.open(redis.url, [], () => {});
    await connection.command("SAVE");
    connection.close();
    await store.update(completed(1));
    assert.equal(await store.delete(idOf(2)), true);
    await store.add(running(3));
    await store.add(running(4));
    await store.update(completed(4));
    await redis.kill();
    await assert.rejects(store.find(idOf(1)), { code: "storage_unavailable" });
    await redis.start();
    // Waits for the last write of the restoration.
    for (let tries = 0; (await statusOf(4).catch(() => undefined)) === undefined; tries++) {
      assert.ok(tries < 200, "the responses were not written again");
      await sleep(30);
    }
    const statuses = await Promise.all([1, 2, 3, 4].map(statusOf));
    assert.deepEqual(statuses, ["completed", undefined, "in_progress", "completed"]);
    for (let tries = 0; losses.length < 2; tries++) {
      assert.ok(tries < 400, "the restoration did not end");
      await sleep(30);
    }
    assert.deepEqual(losses, [true, false]);
    assert.deepEqual(counts, { restored: 0, failed: 0, dropped: 0 }, "the second round had nothing to do");
    assert.deepEqual(
      reports.map((report) => Object.values(report as object).slice(0, 2)),
      [
        ["restoring", true],
        ["warning", { reason: "one more loss" }],
        ["restoring", false],
      ],
    );
  });
});

describe("recent responses", () => {
  it("are dropped after a minute, and the oldest ones above their bytes", () => {
    let now = 0;
    const recent = new RecentResponses(() => now);
    recent.added(running(1));
    now = 50_000;
    for (const number of [2, 3, 4]) recent.added(running(number, 15 * 2 ** 20));
    assert.deepEqual(recent.ids(), [idOf(3), idOf(4)]);
    assert.equal(recent.droppedCount(), 2);
    now = 111_000;
    assert.deepEqual([recent.ids(), recent.droppedCount()], [[], 0]);
  });

  it("are kept for as long as Redis is lost", () => {
    let now = 0;
    const recent = new RecentResponses(() => now);
    recent.added(running(1));
    now = 30_000;
    recent.hold(true);
    now = 500_000;
    recent.added(running(2));
    assert.deepEqual(recent.ids(), [idOf(1), idOf(2)]);
    recent.hold(false);
    now = 529_000;
    assert.deepEqual(recent.ids(), [idOf(1), idOf(2)]);
    now = 531_000;
    assert.deepEqual(recent.ids(), [idOf(2)]);
  });

  it("that were deleted are deleted again after a second deletion too", async () => {
    const raw = new TableStore<KeptHead>(new MemoryTables(), limits);
    const recent = new RecentResponses();
    const [own, other] = ["a", "b"].map(
      (name) => new ResponseStore(raw, { own: name, isAlive: () => true }, null, name === "b" ? recent : null),
    ) as [ResponseStore, ResponseStore];
    await own.add(running(1));
    assert.deepEqual([await other.delete(idOf(1)), await other.delete(idOf(1))], [true, false]);
    // Simulates a store that has lost the tombstone of the deleted response.
    await raw.delete(idOf(1));
    await other.restore();
    assert.equal(await own.update(completed(1)), "deleted");
  });

  it("that have output are marked again if the store has lost the mark", async () => {
    const stores = new Stores(new MemoryTables(), "responses");
    const [raw, index] = [stores.store<KeptHead>("responses", limits), stores.store<never>("restarts", limits)];
    const recent = new RecentResponses();
    const store = new ResponseStore(raw, { own: "a", isAlive: () => true }, index, recent);
    await store.add({ ...running(1), restart: { request: Buffer.from("{}"), count: 0 } });
    assert.equal(await store.begin(idOf(1)), true);
    const kept = (await raw.get(idOf(1)))!;
    assert.equal(kept.head.restarts, undefined);
    await raw.compareAndSet(idOf(1), kept.version, { ...kept, head: { ...kept.head, restarts: 0 } });
    await store.restore();
    assert.equal((await raw.get(idOf(1)))?.head.restarts, undefined);
  });

  it("are not generated again once they have output", () => {
    const recent = new RecentResponses();
    recent.added({ ...running(1), restart: { request: Buffer.from("{}"), count: 0 } });
    recent.begun(idOf(1));
    assert.equal(recent.get(idOf(1))?.record?.restart, undefined);
  });
});
