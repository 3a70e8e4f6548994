// Shared replica state in Redis other than the store: event streams, leases, questions, and values that are replaced while they
// are read.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { wallTime } from "../../../../runtime/clock.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { EventStreams } from "../../../../runtime/store/redis/event-streams.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
import { RedisStore } from "../../../../runtime/store/redis/redis-store.ts";
import { ReplicaBus } from "../../../../runtime/store/redis/replica-bus.ts";
import { ReplicaLease } from "../../../../runtime/store/redis/replica-lease.ts";
import { storeScripts } from "../../../../runtime/store/redis/scripts.ts";
import { type RedisServer, startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

const limits = { maxEntries: 100, maxBytes: 1e8, maxEntryBytes: 5e7, maxAgeMs: 1e9 };

describe("state that replicas share", { skip: lacksRedis }, () => {
  let server: RedisServer;
  let one: RedisConnection;
  let other: RedisConnection;
  before(async () => {
    server = await startRedis();
    one = await RedisConnection.open(server.url, storeScripts, () => {});
    other = await RedisConnection.open(server.url, storeScripts, () => {});
  });
  after(async () => {
    one.close();
    other.close();
    await server.stop();
  });

  it("returns the events after any number once, also if they are added twice, until they are trimmed", async () => {
    const [writer, reader] = [new EventStreams(one), new EventStreams(other)];
    const add = (first: number, next: number, isEnd = false, keptFrom = 0) =>
      writer.append({ id: "r", first, next, text: Buffer.from(`${first}-${next}`), keptFrom, isEnd });
    const read = async (from: number) =>
      (await reader.read("r", from, 0))?.map(({ text, isEnd }) => Buffer.from(text).toString() + (isEnd ? " end" : ""));
    assert.equal(await read(-1), undefined);
    await add(0, 3);
    await add(3, 5);
    await add(3, 5);
    assert.deepEqual([await read(-1), await read(1), await read(2)], [["0-3", "3-5"], ["0-3", "3-5"], ["3-5"]]);
    assert.equal(await read(4), undefined);
    const waiting = reader.read("r", 4, 5000);
    await sleep(30);
    await add(5, 6, true);
    assert.deepEqual(
      (await waiting)?.map(({ first, next, isEnd }) => [first, next, isEnd]),
      [[5, 6, true]],
    );
    // A follower that already has all events still gets the end.
    assert.deepEqual(await read(5), ["5-6 end"]);
    await writer.append({ id: "t", first: 0, next: 4, text: Buffer.from("a"), keptFrom: 0, isEnd: false });
    await writer.append({ id: "t", first: 4, next: 8, text: Buffer.from("b"), keptFrom: 4, isEnd: false });
    assert.deepEqual(
      (await reader.read("t", -1, 0))?.map(({ first }) => first),
      [4],
    );
    writer.close();
    reader.close();
  });

  it("has replicas that are alive until their lease ends, or they give it up", async () => {
    const leases = ["a", "b"].map((name) => new ReplicaLease(one, name, 400));
    const [a, b] = leases as [ReplicaLease, ReplicaLease];
    await Promise.all([a.start(), b.start()]);
    await sleep(700);
    assert.deepEqual([await a.isAlive("b"), await a.isAlive("none")], [true, false]);
    assert.deepEqual([...(await a.replicas())].sort(), ["a", "b"]);
    await b.stop();
    assert.deepEqual([await a.isAlive("b"), await a.replicas()], [false, ["a"]]);
    await one.command("SET", "{troupe}:owner:c", "1", "PX", 100);
    assert.equal(await a.isAlive("c"), true);
    await sleep(150);
    assert.equal(await a.isAlive("c"), false);
    await one.command("SADD", "{troupe}:owners", "c");
    assert.deepEqual([await a.replicas(), await one.command("SCARD", "{troupe}:owners")], [["a"], 1], "c is removed");
    // While Redis was unreachable, no replica could renew its lease. So all count as alive after the reconnection.
    a.reconnected();
    assert.equal(await a.isAlive("c"), true);
    await a.stop();
  });

  it("passes questions to one replica or all others, with their errors", async () => {
    const answers: Record<string, unknown> = { x: null, y: "yes" };
    const alive = { isAlive: async () => true, replicas: async () => ["asker", "x", "y"] };
    const bus = (connection: RedisConnection, name: string) =>
      new ReplicaBus(
        connection,
        name,
        async (question) => {
          if (question === "fail") throw new ServerError("invalid_value", `${name} refuses`);
          return answers[name];
        },
        alive,
      );
    const [asker, x, y] = [bus(one, "asker"), bus(other, "x"), bus(other, "y")];
    await sleep(50);
    assert.deepEqual(await asker.ask(null, "q", false, false), ["yes"]);
    assert.deepEqual(await asker.ask("y", "q", true, false), ["yes"]);
    const began = performance.now();
    assert.deepEqual([await asker.ask("x", "q", true, true), await asker.ask("nobody", "q", true, true)], [[], []]);
    assert.deepEqual(await asker.ask("asker", "q", true, true), [], "a replica does not answer itself");
    assert.ok(performance.now() - began < 2000, "nobody is waited for");
    await assert.rejects(asker.ask("x", "fail", true, false), (error: ServerError) => error.code === "invalid_value");
    for (const each of [asker, x, y]) each.close();
  });

  it("does not rely on the others' answers while a replica with a lease is not subscribed", async () => {
    const replicas = ["asker", "x", "away"];
    const leases = { isAlive: async (name: string) => replicas.includes(name), replicas: async () => replicas };
    const [asker, x] = [
      new ReplicaBus(one, "asker", async () => null, leases),
      new ReplicaBus(other, "x", async (question) => (question === "known" ? "yes" : null), leases),
    ];
    await sleep(50);
    assert.deepEqual(await asker.ask(null, "known", true, true), ["yes"]);
    await assert.rejects(asker.ask(null, "q", true, true), { code: "storage_unavailable" });
    assert.deepEqual(await asker.ask(null, "q", true, false), []);
    replicas.pop();
    assert.deepEqual(await asker.ask(null, "q", true, true), []);
    for (const each of [asker, x]) each.close();
  });

  it("waits for a replica that does not answer while it has its lease, and then leaves it out", async () => {
    let hasLease = true;
    const [asker, x] = [one, other].map(
      (connection, i) =>
        new ReplicaBus(
          connection,
          `replica ${i}`,
          async () => null,
          { isAlive: async (name) => name !== "silent" || hasLease, replicas: async () => [] },
          6000,
        ),
    ) as [ReplicaBus, ReplicaBus];
    const silent = await RedisConnection.open(server.url, [], () => {});
    for (const channel of ["{troupe}:replicas", "{troupe}:replica:silent"]) silent.subscribe(channel, () => {});
    await sleep(50);
    await assert.rejects(asker.ask(null, "q", true, true), { code: "storage_unavailable" });
    hasLease = false;
    // A replica that has lost its lease still counts as alive for a while (here 6 s), because its connection for commands may
    // have failed.
    const began = performance.now();
    await assert.rejects(asker.ask("silent", "q", true, true), { code: "storage_unavailable" });
    assert.deepEqual(await asker.ask(null, "q", true, true), []);
    assert.ok(performance.now() - began < 10_000);
    for (const each of [asker, x, silent]) each.close();
  });

  it("keeps a replaced part for readers that have found it", async () => {
    const store = new RedisStore<string>(one, "grace", limits, { replacedMs: 300 });
    await store.put("a", { head: "first", share: "s", parts: { text: Buffer.from("old") } });
    const found = (await store.get("a"))!;
    await store.put("a", { head: "second", share: "s", parts: { text: Buffer.from("new") } });
    const { id, bytes } = found.parts.text!;
    assert.equal(String(Buffer.from((await store.read(id, 0, bytes)) ?? [])), "old");
    await sleep(400);
    assert.equal(await store.read(id, 0, bytes), null);
    // The store leaves no keys behind except its counters.
    await store.delete("a");
    await sleep(400);
    const keys = (await one.command("KEYS", "{troupe}:grace:*")) as readonly Buffer[];
    assert.deepEqual(keys.map(String).sort(), ["{troupe}:grace:n", "{troupe}:grace:ver"]);
    await store.close();
  });

  it("evicts old entries with few commands while many shares are equally large", async () => {
    const [count, added] = [2000, 100];
    const store = new RedisStore<string>(one, "ties", { ...limits, maxEntries: count });
    const put = async (number: number): Promise<void> => {
      // Names of clients are digests, so that their order says nothing about their age.
      const share = createHash("sha256").update(String(number)).digest("hex");
      await store.put(String(number), { head: "h", share, parts: {} });
    };
    const reads = async (): Promise<number> => {
      const [, calls = "0"] =
        /^cmdstat_zrange:calls=(\d+)/m.exec(String(await one.command("INFO", "commandstats"))) ?? [];
      return Number(calls);
    };
    const numbers = Array.from({ length: count + added }, (_, i) => i);
    for (let at = 0; at < count; at += 100) await Promise.all(numbers.slice(at, at + 100).map(put));
    const before = await reads();
    await Promise.all(numbers.slice(count).map(put));
    const each = ((await reads()) - before) / added;
    assert.ok(each < 50, `${each} sorted sets are read for each new entry`);
    const kept = await Promise.all(numbers.map(async (number) => (await store.get(String(number))) !== null));
    assert.equal(kept.filter(Boolean).length, count);
    assert.deepEqual(kept.slice(count / 2).indexOf(false), -1, "entries of the newer half stay");
    await store.close();
  });

  it("runs its scripts again after they were flushed", async () => {
    const store = new RedisStore<string>(one, "flushed", limits);
    await one.command("SCRIPT", "FLUSH");
    await store.put("a", { head: "h", share: "s", parts: {} });
    assert.equal((await store.get("a"))?.head, "h");
    await store.close();
  });

  it("expires entries by the time of Redis, also for a server whose clock was an hour wrong when it started", async () => {
    for (const hours of [-1, 1]) {
      const origin = performance.timeOrigin + hours * 3_600_000;
      Object.defineProperty(performance, "timeOrigin", { configurable: true, value: origin });
      const wrong = await RedisConnection.open(server.url, storeScripts, () => {});
      try {
        const store = new RedisStore<string>(wrong, "notes", limits);
        const add = async (key: string, ms: number) =>
          await store.put(key, { head: key, share: "a", parts: {}, expiresAt: wallTime() + ms });
        await add("long", 60_000);
        await add("short", 200);
        const kept = await new RedisStore<string>(one, "notes", limits).get("long");
        assert.equal(kept?.head, "long", "the other server finds it");
        const left = ((await store.get("long"))?.expiresAt ?? 0) - wallTime();
        assert.ok(Math.abs(left - 60_000) < 2000, `it expires in ${left} ms`);
        await sleep(400);
        assert.equal(await store.get("short"), null);
      } finally {
        Reflect.deleteProperty(performance, "timeOrigin");
        wrong.close();
      }
    }
  });
});
