import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pack, unpack } from "msgpackr";
import { LmdbTables } from "../../../../runtime/store/lmdb/lmdb-tables.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import type { Entry, Store, StoreLimits } from "../../../../runtime/store/store.ts";
import { Stores } from "../../../../runtime/store/stores.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";
import type { Tables } from "../../../../runtime/store/tables.ts";
import { redisStores } from "../../../fixtures/store/redis-stores.ts";

interface Note {
  readonly title: string;
}

const limits: StoreLimits = { maxEntries: 10_000, maxBytes: 1e8, maxEntryBytes: 5e7, maxAgeMs: 1e9 };
const root = mkdtempSync(join(tmpdir(), "troupe-keys-"));
after(() => rmSync(root, { recursive: true, force: true }));
let folderCount = 0;
const newFolder = (): string => join(root, String(folderCount++));

const note = (title: string, expiresAt: number | null = null): Entry<Note> => {
  return { head: { title }, share: "one", parts: { text: Buffer.from(title) }, expiresAt };
};

async function textOf(store: Store<Note>, key: string): Promise<string | null> {
  const part = (await store.get(key))?.parts.text;
  const bytes = part === undefined ? null : await store.read(part.id, 0, part.bytes);
  return bytes === null ? null : Buffer.from(bytes).toString();
}

/** Returns all keys, page by page. */
async function keysOf(
  store: Store<Note>,
  request: { readonly prefix?: string; readonly limit: number },
  between: () => Promise<unknown> = async () => {},
): Promise<string> {
  const keys: string[] = [];
  let cursor: string | null = null;
  do {
    const page = await store.list({ ...request, cursor });
    assert.ok(page.entries.length <= request.limit);
    keys.push(...page.entries.map(({ key }) => key));
    cursor = page.cursor;
    if (cursor !== null) await between();
  } while (cursor !== null);
  return keys.join(" ");
}

const tableKinds: Readonly<Record<string, () => Tables>> = {
  memory: () => new MemoryTables(),
  "a folder": () => new LmdbTables(newFolder()),
};

const inRedis = redisStores();

const kinds: Readonly<Record<string, (now?: () => number) => Store<Note>>> = {
  memory: (now) => new TableStore(new MemoryTables(), limits, now),
  "a folder": (now) => new TableStore(new LmdbTables(newFolder()), limits, now),
  Redis: (now) => inRedis.open(limits, now),
};

for (const [name, open] of Object.entries(kinds)) {
  describe(`keys of a store in ${name}`, { skip: name === "Redis" && inRedis.isMissing }, () => {
    if (name === "Redis") inRedis.use();

    it("are listed in order, by prefix and in pages", async () => {
      const store = open();
      assert.deepEqual(await store.list({ cursor: null, limit: 5 }), { entries: [], cursor: null });
      for (const key of ["b2", "a", "b10", "c", "b1", "b", "ab"]) await store.put(key, note(key));
      for (const limit of [1, 2, 3, 7, 100]) {
        assert.equal(await keysOf(store, { limit }), "a ab b b1 b10 b2 c");
        assert.equal(await keysOf(store, { prefix: "b", limit }), "b b1 b10 b2");
        assert.equal(await keysOf(store, { prefix: "b1", limit }), "b1 b10");
        assert.equal(await keysOf(store, { prefix: "d", limit }), "");
      }
      assert.equal((await store.list({ prefix: "b", cursor: null, limit: 4 })).cursor, null);
      assert.equal((await store.list({ cursor: null, limit: 1 })).entries[0]?.head.title, "a");
      await store.close();
    });

    it("are each listed once if the entry stays, whatever is written between two pages", async () => {
      const store = open();
      for (let i = 10; i < 60; i++) await store.put(`k${i}`, note("old"));
      let round = 0;
      const keys = await keysOf(store, { limit: 4 }, async () => {
        // Deletes the last key of the page, inserts keys before and after it, and changes other keys.
        await store.delete(`k${13 + 4 * round}`);
        await Promise.all(["k05", `k${10 + round}x`, `z${round}`, "k59"].map((key) => store.put(key, note("new"))));
        round++;
      });
      const listed = keys.split(" ");
      assert.equal(new Set(listed).size, listed.length);
      for (let i = 10; i < 60; i++) if (i < 13 || i % 4 !== 1) assert.ok(listed.includes(`k${i}`), `k${i}`);
      await store.close();
    });

    it("are set only at the expected version, and no version comes twice", async () => {
      const store = open();
      assert.equal(await store.compareAndSet("a", 1, note("none yet")), false);
      assert.equal(await store.compareAndSet("a", null, note("first")), true);
      assert.equal(await store.compareAndSet("a", null, note("again")), false);
      const first = (await store.get("a"))!.version;
      assert.equal(await store.compareAndSet("a", first, note("second")), true);
      assert.equal(await store.compareAndSet("a", first, null), false);
      assert.equal(await textOf(store, "a"), "second");
      assert.equal(await store.compareAndSet("a", (await store.get("a"))!.version, null), true);
      assert.deepEqual([await store.get("a"), await store.compareAndSet("a", null, null)], [null, true]);
      await store.put("a", note("second"));
      assert.ok((await store.get("a"))!.version > first + 1);
      // More changes than the change log can hold.
      await Promise.all(Array.from({ length: 4200 }, () => store.put("a", note("x"))));
      const { version } = (await store.get("a"))!;
      await store.delete("a");
      await store.put("a", note("x"));
      assert.deepEqual([version > 4200, (await store.get("a"))!.version], [true, version + 2]);
      await store.close();
    });

    it("are set by one of many that expect the same version", async () => {
      const store = open();
      await store.put("a", note("0"));
      const { version } = (await store.get("a"))!;
      const writers = Array.from({ length: 50 }, (_, i) => store.compareAndSet("a", version, note(String(i))));
      const winners = (await Promise.all(writers)).flatMap((won, i) => (won ? [String(i)] : []));
      assert.deepEqual(winners, [await textOf(store, "a")]);
      await store.close();
    });

    it("keep parts of the version that is replaced, and no others", async () => {
      const store = open();
      const large = Buffer.alloc(6e6, 1);
      await store.put("a", { ...note("a"), parts: { large, small: Buffer.from("x") } });
      const kept = (await store.get("a"))!;
      const parts = { large: kept.parts.large!, more: Buffer.from("y") };
      assert.equal(await store.compareAndSet("a", kept.version, { ...kept, parts }), true);
      const next = (await store.get("a"))!;
      assert.deepEqual([next.parts.large, Object.keys(next.parts)], [kept.parts.large, ["large", "more"]]);
      assert.equal((await store.read(next.parts.large!.id, 0, 6e6))?.byteLength, 6e6);
      assert.equal(await store.read(kept.parts.small!.id, 0, 1), null);
      await assert.rejects(store.compareAndSet("b", null, { ...note("b"), parts }), /a part of another entry/);
      await store.close();
    });

    it("expire at their time: hidden at once, removed an hour later, and replaced meanwhile", async () => {
      let now = 1000;
      const store = open(() => now);
      await store.put("a", note("a", 1500));
      await store.put("b", note("b", 1600));
      await store.put("c", note("c"));
      now = 1499;
      assert.equal(await keysOf(store, { limit: 10 }), "a b c");
      now = 1500;
      assert.deepEqual([await store.get("a"), await keysOf(store, { limit: 1 })], [null, "b c"]);
      assert.deepEqual([await store.delete("a"), await store.compareAndSet("a", null, note("new"))], [false, true]);
      assert.equal(await textOf(store, "a"), "new");
      now = 3_600_000 + 1600;
      await store.sweep();
      now = 1500;
      assert.equal(await keysOf(store, { limit: 10 }), "a c");
      await store.close();
    });

    it("are watched: one by name, or all with a prefix, until the watch ends", async () => {
      const store = open();
      await store.put("a1", note("before"));
      const seen: Record<string, (string | null)[]> = { one: [], many: [], ended: [] };
      const stop = store.watch({ prefix: "" }, (key) => seen.ended?.push(key));
      store.watch({ key: "a1" }, (key) => seen.one?.push(key));
      store.watch({ prefix: "a" }, (key) => seen.many?.push(key));
      stop();
      // A store over the network needs this time to subscribe.
      await sleep(100);
      await store.put("a1", note("one"));
      await store.put("a12", note("two"));
      await store.put("b", note("three"));
      await store.delete("a1");
      await store.delete("a1");
      await sleep(250);
      assert.deepEqual(seen, { one: ["a1", "a1"], many: ["a1", "a12", "a1"], ended: [] });
      await store.close();
    });
  });
}

for (const [name, openTables] of Object.entries(tableKinds)) {
  describe(`keys of a store of tables in ${name}`, () => {
    it("are reported as null if they changed too often for the log", async () => {
      const tables = openTables();
      const [writer, reader] = [new TableStore<Note>(tables, limits), new TableStore<Note>(tables, limits)];
      const seen: (string | null)[] = [];
      await writer.put("a", note("a"));
      reader.watch({ key: "other" }, (key) => seen.push(key));
      tables.transaction(() => {
        const changes = tables.table("changes");
        changes.remove([1]);
        for (let i = 5000; i < 5010; i++) changes.put([i], Buffer.from("a"));
        changes.put([0], pack(5009));
      });
      await sleep(250);
      assert.deepEqual(seen, [null]);
      await writer.put("other", note("b"));
      await sleep(250);
      assert.deepEqual(seen, [null, "other"]);
      await Promise.all([writer.close(), reader.close()]);
    });
  });

  describe(`named stores in ${name}`, () => {
    it("share tables, and have entries and limits of their own", async () => {
      const stores = new Stores(openTables(), "notes");
      const notes = stores.store<Note>("notes", { ...limits, maxEntries: 2 });
      const files = stores.store<Note>("files", limits);
      for (const key of ["a", "b", "c"]) await Promise.all([notes.put(key, note("n")), files.put(key, note("f"))]);
      const pages = await Promise.all([notes, files].map((store) => store.list({ cursor: null, limit: 9 })));
      const keys = pages.map(({ entries }) => entries.map(({ key }) => key));
      assert.deepEqual(keys, [
        ["b", "c"],
        ["a", "b", "c"],
      ]);
      await notes.close();
      assert.equal((await files.get("a"))?.head.title, "f");
      await files.close();
    });
  });
}

describe("a folder of an earlier release", () => {
  it("is read, changed and listed: its entries have version 0", async () => {
    const folder = newFolder();
    const before = new TableStore<Note>(new LmdbTables(folder), limits);
    await before.put("a", note("old"));
    await before.close();
    const tables = new LmdbTables(folder);
    tables.transaction(() => {
      const entries = tables.table("entries");
      const { version, expiresAt, ...old } = unpack(entries.get(["a"])!);
      entries.put(["a"], pack(old));
      for (const number of [0, version + (expiresAt ?? 0)]) tables.table("changes").remove([number]);
    });
    const stores = new Stores(tables, "notes");
    const store = stores.store<Note>("notes", limits);
    assert.deepEqual([(await store.get("a"))?.version, (await store.get("a"))?.expiresAt], [0, null]);
    assert.equal((await store.list({ cursor: null, limit: 9 })).entries.length, 1);
    assert.equal(await store.compareAndSet("a", 0, note("new")), true);
    assert.equal((await store.get("a"))?.version, 1);
    await store.close();
  });

  it("loses parts that were written ahead by a process that is gone", async () => {
    const folder = newFolder();
    let now = 0;
    const tables = new LmdbTables(folder);
    const store = new TableStore<Note>(tables, limits, () => now);
    tables.transaction(() => {
      tables.table("unclaimed").put([7], pack({ at: 0, bytes: 10 }));
      tables.table("chunks").put([7, 0], Buffer.alloc(10));
    });
    await store.sweep();
    assert.equal((await store.read(7, 0, 10))?.byteLength, 10);
    now = 700_000;
    await store.sweep();
    assert.equal(await store.read(7, 0, 10), null);
    await store.close();
  });
});
