// Responses after a failover of Redis: what a replica has stored shortly before is written again, on a real server that loses it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ResponseUpdate, StoredResponse } from "../../../../actors/api/stored-responses.ts";
import { ResponseStore } from "../../../../actors/state/response-store.ts";
import { RecentResponses } from "../../../../actors/state/shared/recent-responses.ts";
import { SharedState } from "../../../../actors/state/shared/shared-state.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
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
    const shared = await SharedState.open({ url: redis.url, replica: "replica_a", leaseMs: 10_000 }, () => {});
    const store = new ResponseStore(shared.store("responses", limits), shared.owners, null, new RecentResponses());
    shared.onReplaced(() => store.restore());
    t.after(async () => {
      await shared.behaviour().onStop?.();
      await redis.stop();
    });
    const statusOf = async (number: number) => (await store.find(idOf(number)))?.status;
    await store.add(running(1));
    await store.add(running(2));
    // What is replicated, or on the disk, is all until here.
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
    // The last write of the restoration.
    for (let tries = 0; (await statusOf(4).catch(() => undefined)) === undefined; tries++) {
      assert.ok(tries < 200, "the responses were not written again");
      await sleep(30);
    }
    const statuses = await Promise.all([1, 2, 3, 4].map(statusOf));
    assert.deepEqual(statuses, ["completed", undefined, "in_progress", "completed"]);
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
    now = 111_000;
    assert.deepEqual(recent.ids(), []);
  });

  it("are not generated again once they have output", () => {
    const recent = new RecentResponses();
    recent.added({ ...running(1), restart: { request: Buffer.from("{}"), count: 0 } });
    recent.begun(idOf(1));
    assert.equal(recent.get(idOf(1))?.record?.restart, undefined);
  });
});
