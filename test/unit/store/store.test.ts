import assert from "node:assert/strict";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { ServerError } from "../../../runtime/errors.ts";
import { LmdbStore } from "../../../runtime/store/lmdb-store.ts";
import { MemoryStore } from "../../../runtime/store/memory-store.ts";
import type { Entry, Store, StoreLimits } from "../../../runtime/store/store.ts";

interface Note {
  readonly text: string;
}

const roomy: StoreLimits = { maxEntries: 100, maxBytes: 1e6, maxEntryBytes: 1e5, maxAgeMs: 1000 };
const root = mkdtempSync(join(tmpdir(), "troupe-store-"));
after(() => rmSync(root, { recursive: true, force: true }));
let folderCount = 0;
const newFolder = (): string => join(root, String(folderCount++), "state");

type Notes = Store<Note, Note>;
type Folder = LmdbStore<Note, Note>;
const openFolder = (folder: string, limits: StoreLimits, now?: () => number): Promise<Folder> =>
  LmdbStore.open(folder, limits, now);
/** Most of it in the part that is seldom read. */
const note = (text: string): Entry<Note, Note> => ({ head: { text: text.slice(0, 5) }, rest: { text } });
const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

async function kept(store: Notes, keys: string): Promise<string> {
  const found = await Promise.all([...keys].map(async (key) => ((await store.get(key)) === null ? "" : key)));
  return found.join("");
}

type Open = (limits: Partial<StoreLimits>, now: () => number) => Promise<Notes>;

const kinds: Readonly<Record<string, Open>> = {
  memory: async (limits, now) => new MemoryStore({ ...roomy, ...limits }, now),
  disk: (limits, now) => LmdbStore.open(newFolder(), { ...roomy, ...limits }, now),
};

for (const [name, open] of Object.entries(kinds)) {
  describe(`a store in ${name === "disk" ? "a folder" : "memory"}`, () => {
    it("gives back what was put, until it is deleted", async () => {
      const store = await open({}, Date.now);
      await store.put("a", note("one"));
      await store.put("a", note("two"));
      assert.deepEqual(await store.get("a"), note("two"));
      assert.equal(await store.get("b"), null);
      assert.deepEqual([await store.delete("a"), await store.delete("a"), await store.get("a")], [true, false, null]);
      await store.close();
    });

    it("gives the head of a value without the rest", async () => {
      const store = await open({}, Date.now);
      await store.put("a", note("a long note"));
      assert.deepEqual([await store.head("a"), await store.head("b")], [{ text: "a lon" }, null]);
      await store.replace("a", note("other"));
      assert.deepEqual(await store.head("a"), { text: "other" });
      await store.delete("a");
      assert.equal(await store.head("a"), null);
      await store.close();
    });

    it("replaces only what is there, which keeps its age", async () => {
      let now = 0;
      const store = await open({ maxAgeMs: 100 }, () => now);
      assert.equal(await store.replace("a", note("none")), false);
      await store.put("a", note("old"));
      now = 60;
      assert.equal(await store.replace("a", note("new")), true);
      assert.deepEqual(await store.get("a"), note("new"));
      now = 101;
      assert.deepEqual(
        [await store.get("a"), await store.replace("a", note("late")), await store.delete("a")],
        [null, false, false],
      );
      await store.close();
    });

    it("removes what is too old, and does not only hide it", async () => {
      let now = 0;
      const store = await open({ maxAgeMs: 100 }, () => now);
      await store.put("a", note("old"));
      now = 101;
      await store.put("b", note("new"));
      now = 50;
      assert.deepEqual([await store.get("a"), await store.get("b")], [null, note("new")]);
      await store.close();
    });

    it("lets the oldest go when there are too many, and one put again is the newest", async () => {
      let now = 0;
      const store = await open({ maxEntries: 3 }, () => now++);
      for (const key of "abc") await store.put(key, note(key));
      await store.put("a", note("again"));
      await store.put("d", note("d"));
      assert.equal(await kept(store, "abcd"), "acd");
      await store.close();
    });

    it("lets the oldest go when all are too large together, also when one grows", async () => {
      let now = 0;
      const store = await open({ maxBytes: 1000 }, () => now++);
      for (const key of "abc") await store.put(key, note("x".repeat(300)));
      assert.equal(await kept(store, "abc"), "abc");
      await store.replace("c", note("x".repeat(600)));
      assert.equal(await kept(store, "abc"), "bc");
      await store.delete("b");
      await store.put("d", note("x".repeat(300)));
      assert.equal(await kept(store, "cd"), "cd");
      await store.close();
    });

    it("refuses what is too large by itself, and changes nothing", async () => {
      const store = await open({ maxEntryBytes: 100 }, Date.now);
      await store.put("a", note("small"));
      await assert.rejects(store.put("a", note("x".repeat(100))), isCode("invalid_value"));
      await assert.rejects(store.replace("a", note("x".repeat(100))), isCode("invalid_value"));
      assert.deepEqual(await store.get("a"), note("small"));
      await store.close();
    });
  });
}

describe("a store in a folder", () => {
  it("has after it was opened again what it had, within the limits of today", async () => {
    const folder = newFolder();
    let now = 0;
    const first = await openFolder(folder, roomy, () => now++);
    for (const key of "abc") await first.put(key, note(key));
    await first.close();
    const second = await openFolder(folder, { ...roomy, maxEntries: 2 }, () => now);
    assert.equal(await kept(second, "abc"), "bc");
    await second.close();
  });

  it("is shared by two that have it open", async () => {
    const folder = newFolder();
    const limits = { ...roomy, maxEntries: 2 };
    const [one, other] = [await openFolder(folder, limits), await openFolder(folder, limits)];
    await one.put("a", note("one"));
    await other.put("b", note("other"));
    await one.put("c", note("one"));
    assert.deepEqual([await kept(one, "abc"), await kept(other, "abc")], ["bc", "bc"]);
    await Promise.all([one.close(), other.close()]);
  });

  it("says clearly that a file is damaged or cut off, or the folder is none", async () => {
    const folder = newFolder();
    const store = await openFolder(folder, roomy);
    for (let i = 0; i < 20; i++) await store.put(`k${i}`, note("x".repeat(50_000)));
    await store.close();
    truncateSync(join(folder, "data.mdb"), 20_000);
    await assert.rejects(LmdbStore.open(folder, roomy), /cut off.*choose another/);
    writeFileSync(join(folder, "data.mdb"), "x".repeat(20_000));
    await assert.rejects(LmdbStore.open(folder, roomy), isCode("config_invalid"));
    await assert.rejects(LmdbStore.open(join(folder, "data.mdb"), roomy), isCode("config_invalid"));
    writeFileSync(join(folder, "data.mdb"), "");
    await (await LmdbStore.open(folder, roomy)).close();
  });
});
