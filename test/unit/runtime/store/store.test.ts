import assert from "node:assert/strict";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { ServerError } from "../../../../runtime/errors.ts";
import { LmdbTables } from "../../../../runtime/store/lmdb/lmdb-tables.ts";
import { checkFormat } from "../../../../runtime/store/lmdb/state-format.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import type { Entry, NewestPage, Store, StoreLimits } from "../../../../runtime/store/store.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";
import type { TableKey, Tables } from "../../../../runtime/store/tables.ts";
import { redisStores } from "../../../fixtures/store/redis-stores.ts";

interface Note {
  readonly title: string;
}

type Notes = Store<Note>;

const roomy: StoreLimits = { maxEntries: 100, maxBytes: 1e8, maxEntryBytes: 5e7, maxAgeMs: 1000 };
const root = mkdtempSync(join(tmpdir(), "troupe-store-"));
after(() => rmSync(root, { recursive: true, force: true }));
let folderCount = 0;
const newFolder = (): string => join(root, String(folderCount++), "state");

const openFolder = (folder: string, limits: StoreLimits = roomy, now?: () => number): Notes =>
  new TableStore(new LmdbTables(folder), limits, now);
const note = (text: string, share = "one"): Entry<Note> => {
  return { head: { title: text.slice(0, 5) }, share, parts: { text: Buffer.from(text), more: Buffer.from("+") } };
};
const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

async function textOf(store: Notes, key: string, part = "text"): Promise<string | null> {
  const found = (await store.get(key))?.parts[part];
  const bytes = found === undefined ? null : await store.read(found.id, 0, found.bytes);
  return bytes === null ? null : Buffer.from(bytes).toString();
}

function targetOf(file: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${file}`);
  } catch {
    return "";
  }
}

async function kept(store: Notes, keys: string): Promise<string> {
  const found = await Promise.all([...keys].map(async (key) => ((await store.get(key)) === null ? "" : key)));
  return found.join("");
}

/** Replaces the text of an entry, if the entry exists. */
async function rewrite(store: Notes, key: string, text: string): Promise<void> {
  const entry = await store.get(key);
  if (entry === null) return;
  const parts = { ...entry.parts, text: Buffer.from(text) };
  assert.ok(await store.compareAndSet(key, entry.version, { ...entry, head: { title: text.slice(0, 5) }, parts }));
}

const tableKinds: Readonly<Record<string, () => Tables>> = {
  memory: () => new MemoryTables(),
  "a folder": () => new LmdbTables(newFolder()),
};

const inRedis = redisStores();

const kinds: Readonly<Record<string, (limits: StoreLimits, now?: () => number) => Notes>> = {
  memory: (limits, now) => new TableStore(new MemoryTables(), limits, now),
  "a folder": (limits, now) => new TableStore(new LmdbTables(newFolder()), limits, now),
  Redis: inRedis.open,
};

for (const [name, openStore] of Object.entries(kinds)) {
  const open = (limits?: Partial<StoreLimits>, now?: () => number): Notes => openStore({ ...roomy, ...limits }, now);

  describe(`a store in ${name}`, { skip: name === "Redis" && inRedis.isMissing }, () => {
    if (name === "Redis") inRedis.use();

    it("returns an entry until it is removed", async () => {
      const store = open();
      await store.put("a", note("one"));
      await store.put("a", note("two, longer"));
      assert.deepEqual([(await store.get("a"))?.head, await textOf(store, "a")], [{ title: "two, " }, "two, longer"]);
      assert.equal(await store.get("b"), null);
      assert.deepEqual([await store.delete("a"), await store.delete("a")], [true, false]);
      assert.equal(await store.get("a"), null);
      await store.close();
    });

    it("returns slices of a part as copies, and null for a removed part", async () => {
      const store = open();
      const bytes = Buffer.alloc(9e6);
      for (let i = 0; i < bytes.length; i++) bytes[i] = i % 251;
      await store.put("a", { ...note("a"), parts: { text: bytes } });
      const part = (await store.get("a"))!.parts.text!;
      assert.equal(part.bytes, bytes.length);
      for (const [from, to] of [
        [0, 1],
        [65_000, 70_000],
        [8_999_999, 9e6],
        [0, 9e6],
      ] as const) {
        assert.ok(bytes.subarray(from, to).equals((await store.read(part.id, from, to))!), `${from} to ${to}`);
      }
      (await store.read(part.id, 0, 10))!.fill(0);
      bytes.fill(0);
      assert.equal((await store.read(part.id, 0, 10))?.[1], 1);
      await rewrite(store, "a", "new");
      assert.equal(await store.read(part.id, 0, 10), null);
      await store.close();
    });

    it("returns the newest entries in pages, whatever is written between two of them", async () => {
      let now = 1000;
      const store = open({ maxAgeMs: 50 }, () => now);
      // Entries with the same time are sorted by key.
      for (const [key, at] of Object.entries({ b: 1, e: 2, a: 3, d: 3, c: 4 })) {
        now = 1000 + at;
        await store.put(key, note(key));
      }
      const keysOf = ({ entries }: NewestPage<Note>) => entries.map(({ key }) => key).join("");
      assert.equal(keysOf(await store.newest({ before: null, limit: 10 })), "cdaeb");
      const first = await store.newest({ before: null, limit: 2 });
      assert.deepEqual([keysOf(first), first.next], ["cd", { born: 1003, key: "d" }]);
      await store.delete("d");
      await store.put("f", note("f"));
      const second = await store.newest({ before: first.next, limit: 2 });
      assert.equal(keysOf(second), "ae");
      const third = await store.newest({ before: second.next, limit: 2 });
      assert.deepEqual([keysOf(third), third.next], ["b", null]);
      // A replaced entry keeps its position.
      await rewrite(store, "e", "new");
      assert.equal(keysOf(await store.newest({ before: null, limit: 10 })), "fcaeb");
      now = 1053;
      assert.equal(keysOf(await store.newest({ before: null, limit: 10 })), "fca");
      await store.close();
    });

    it("returns nothing to a reader with part ids of an earlier store", async () => {
      const [earlier, later] = [open(), open()];
      await earlier.put("a", note("of the one"));
      const part = (await earlier.get("a"))!.parts.text!;
      await earlier.close();
      for (const key of "abc") await later.put(key, note("of another"));
      assert.equal(await later.read(part.id, 0, part.bytes), null);
      await later.close();
    });

    it("replaces the given parts of an entry at its version; the others stay", async () => {
      const store = open();
      await store.put("a", note("old"));
      await rewrite(store, "a", "new");
      assert.deepEqual([await textOf(store, "a"), await textOf(store, "a", "more")], ["new", "+"]);
      const entry = (await store.get("a"))!;
      const more = entry.parts.more!;
      const next = { ...entry, head: { title: `${entry.head.title}er` }, parts: { more } };
      assert.equal(await store.compareAndSet("a", entry.version, next), true);
      assert.deepEqual(
        [(await store.get("a"))?.head.title, await textOf(store, "a"), await textOf(store, "a", "more")],
        ["newer", null, "+"],
      );
      await rewrite(store, "b", "nothing");
      assert.equal(await store.compareAndSet("a", entry.version, note("x")), false);
      assert.deepEqual([await store.get("b"), await textOf(store, "a")], [null, null]);
      await store.close();
    });

    it("evicts the oldest entries above the limit; an entry put again is the newest", async () => {
      let now = 0;
      const store = open({ maxEntries: 3 }, () => now++);
      for (const key of "abc") await store.put(key, note(key));
      await store.put("a", note("again"));
      await store.put("d", note("d"));
      assert.equal(await kept(store, "abcd"), "acd");
      await store.close();
    });

    it("evicts the oldest entries above the limit of bytes, also when an entry grows", async () => {
      let now = 0;
      const store = open({ maxBytes: 1000 }, () => now++);
      for (const key of "abc") await store.put(key, note("x".repeat(300)));
      assert.equal(await kept(store, "abc"), "abc");
      await rewrite(store, "c", "x".repeat(600));
      assert.equal(await kept(store, "abc"), "bc");
      await store.delete("b");
      await store.put("d", note("x".repeat(300)));
      assert.equal(await kept(store, "cd"), "cd");
      await store.close();
    });

    it("evicts from the share with most entries, the oldest first", async () => {
      let now = 0;
      const store = open({ maxEntries: 5 }, () => now++);
      await store.put("a", note("a", "small"));
      for (const key of "bcde") await store.put(key, note(key, "large"));
      for (const key of "fghi") await store.put(key, note(key, "large"));
      assert.equal(await kept(store, "abcdefghi"), "afghi");
      for (const key of "jk") await store.put(key, note(key, "third"));
      assert.equal(await kept(store, "afghijk"), "ahijk");
      // If two shares (entries of one client) have the same number of entries, the older of their oldest entries is evicted.
      for (const key of "lm") await store.put(key, note(key, "fourth"));
      assert.equal(await kept(store, "ahijklm"), "aiklm");
      await store.close();
    });

    it("evicts from the share with most bytes, and never the entry just put", async () => {
      let now = 0;
      const store = open({ maxBytes: 2000 }, () => now++);
      for (const key of "abcde") await store.put(key, note("x".repeat(100), "small"));
      await store.put("f", note("x".repeat(800), "large"));
      await store.put("g", note("x".repeat(800), "large"));
      assert.equal(await kept(store, "abcdefg"), "abcdeg");
      await store.put("h", note("x".repeat(1500), "large"));
      assert.equal(await kept(store, "abcdegh"), "bcdeh");
      await store.put("i", note("x".repeat(1800), "other"));
      assert.equal(await kept(store, "abcdeghi"), "ei");
      await store.close();
    });

    it("refuses an entry that is too large, and changes nothing", async () => {
      const store = open({ maxEntryBytes: 100 });
      await store.put("a", note("small"));
      await assert.rejects(store.put("a", note("x".repeat(100))), isCode("invalid_value"));
      await assert.rejects(rewrite(store, "a", "x".repeat(100)), isCode("invalid_value"));
      await assert.rejects(
        store.compareAndSet("a", 1, {
          ...note("a"),
          head: { title: "x".repeat(50) },
          parts: { third: Buffer.alloc(60) },
        }),
        isCode("invalid_value"),
      );
      assert.equal(await textOf(store, "a"), "small");
      await store.close();
    });

    it("makes concurrent writes in the order of their calls", async () => {
      const store = open({ maxEntryBytes: 5e6 });
      await store.put("a", note("one"));
      const { version } = (await store.get("a"))!;
      const outcomes = await Promise.allSettled([
        store.put("d", note("d")),
        store.put("b", note("x".repeat(6e6))),
        store.compareAndSet("a", version, note("two")),
        store.compareAndSet("a", version, note("three")),
        store.put("c", note("c")),
        store.delete("c"),
      ]);
      assert.deepEqual(
        outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : "refused")),
        [undefined, "refused", true, false, undefined, true],
      );
      assert.deepEqual([await textOf(store, "a"), await kept(store, "abc")], ["two", "a"]);
      await store.close();
    });

    it("hides an entry that is too old at once, and removes it an hour later", async () => {
      let now = 0;
      const store = open({ maxAgeMs: 100 }, () => now);
      await store.put("a", note("old"));
      now = 60;
      await rewrite(store, "a", "new");
      assert.equal(await textOf(store, "a"), "new");
      now = 101;
      assert.equal(await store.get("a"), null);
      await rewrite(store, "a", "late");
      await store.sweep();
      now = 50;
      assert.equal(await textOf(store, "a"), "new");
      now = 3_600_000 + 101;
      await store.sweep();
      now = 50;
      assert.equal(await store.get("a"), null);
      await store.close();
    });
  });
}

for (const [name, openTables] of Object.entries(tableKinds)) {
  describe(`a store of tables in ${name}`, () => {
    it("keeps its limits if its tables have rows of entries that do not exist", async () => {
      const strays: readonly [table: string, key: TableKey][] = [
        ["ages", [-5, "stray"]],
        ["ages", [-4, "a"]],
        ["by-share", ["one", -5, "stray"]],
      ];
      for (const stray of strays) {
        let now = 0;
        const tables = openTables();
        tables.transaction(() => tables.table(stray[0]).put(stray[1], Uint8Array.of(0)));
        const store: Notes = new TableStore(tables, { ...roomy, maxEntries: 2, maxAgeMs: 1e9 }, () => now++);
        for (const key of "abcdef") await store.put(key, note(key));
        assert.equal(await kept(store, "abcdef"), "ef", String(stray));
        now = 4_000_000_000;
        await store.put("g", note("g"));
        await store.sweep();
        assert.equal(
          tables.view(() => tables.table("entries").first(10).length),
          1,
          String(stray),
        );
        assert.deepEqual(
          tables.view(() => tables.table("ages").first(10).length),
          1,
          String(stray),
        );
        await store.close();
      }
    });
  });
}

describe("a store in a folder", () => {
  it("has its entries after it was opened again, within the new limits", async () => {
    const folder = newFolder();
    let now = 0;
    const first = openFolder(folder, roomy, () => now++);
    for (let i = 0; i < 100; i++) await first.put(`k${i}`, note(`k${i}`));
    await first.close();
    const second = openFolder(folder, { ...roomy, maxEntries: 2 }, () => now);
    await second.sweep();
    assert.deepEqual(
      [await second.get("k97"), await textOf(second, "k98"), await textOf(second, "k99")],
      [null, "k98", "k99"],
    );
    await second.close();
  });

  it("loses nothing to a clock that was wrong at one start", async () => {
    const folder = newFolder();
    const limits = { ...roomy, maxAgeMs: 1000 };
    const first = openFolder(folder, limits, () => 1e6);
    await first.put("a", note("a"));
    await first.close();
    let now = 1e9;
    const ahead = openFolder(folder, limits, () => now);
    await ahead.sweep();
    now += 3_500_000;
    await ahead.put("b", note("b"));
    await ahead.sweep();
    assert.equal(await kept(ahead, "ab"), "b");
    await ahead.close();
    const right = openFolder(folder, limits, () => 1e6);
    assert.equal(await kept(right, "ab"), "ab");
    await right.close();
  });

  it("is shared by two that have it open", async () => {
    const folder = newFolder();
    const limits = { ...roomy, maxEntries: 2 };
    const [one, other] = [openFolder(folder, limits), openFolder(folder, limits)];
    await one.put("a", note("one"));
    await other.put("b", note("other"));
    await one.put("c", note("one"));
    assert.deepEqual([await kept(one, "abc"), await kept(other, "abc")], ["bc", "bc"]);
    await Promise.all([one.close(), other.close()]);
  });

  it("keeps no bytes of a write that was refused after its parts were written", async () => {
    const folder = newFolder();
    const store = openFolder(folder);
    const size = () => statSync(join(folder, "data.mdb")).size;
    const text = Buffer.alloc(2e7);
    for (let i = 0; i < 2; i++) await store.compareAndSet("none", 1, { ...note(""), parts: { text } });
    const before = size();
    for (let i = 0; i < 5; i++) await store.compareAndSet("none", 1, { ...note(""), parts: { text } });
    assert.ok(size() < before + 1e7, `${size()} bytes, ${before} before`);
    await store.close();
  });

  it("serves reads while a large entry is written", async () => {
    const store = openFolder(newFolder());
    await store.put("a", note("a"));
    let turns = 0;
    let isDone = false;
    const large = store.put("b", { ...note("b"), parts: { text: Buffer.alloc(4e7) } }).then(() => {
      isDone = true;
    });
    while (!isDone) {
      assert.equal(await textOf(store, "a"), "a");
      await new Promise(setImmediate);
      turns++;
    }
    await large;
    assert.ok(turns >= 9, `${turns} turns`);
    await store.close();
  });

  it("is opened again after a permanent failure", {
    skip: process.platform !== "linux",
  }, async () => {
    const folder = newFolder();
    const store = openFolder(folder);
    await store.put("a", note("a"));
    for (const file of readdirSync("/proc/self/fd")) {
      // Closes the file without the database knowing, as a network file system may do.
      if (targetOf(file) === join(folder, "data.mdb")) closeSync(Number(file));
    }
    await assert.rejects(store.put("b", note("b")), isCode("storage_unavailable"));
    await store.put("c", note("c"));
    assert.equal(await kept(store, "abc"), "ac");
    await store.close();
  });

  it("reports a damaged or truncated file, and a path that is not a folder", async () => {
    const folder = newFolder();
    const store = openFolder(folder);
    for (let i = 0; i < 20; i++) await store.put(`k${i}`, note("x".repeat(50_000)));
    await store.close();
    truncateSync(join(folder, "data.mdb"), 20_000);
    assert.throws(() => openFolder(folder), /cut off.*choose another/);
    writeFileSync(join(folder, "data.mdb"), "x".repeat(20_000));
    assert.throws(() => openFolder(folder), isCode("config_invalid"));
    assert.throws(() => openFolder(join(folder, "data.mdb")), isCode("config_invalid"));
    writeFileSync(join(folder, "data.mdb"), "");
    assert.ok(existsSync(folder));
    await openFolder(folder).close();
  });
});

describe("the format of a state folder", () => {
  it("is written once, and a later one is refused and kept", () => {
    const folder = newFolder();
    const path = join(folder, "format");
    checkFormat(folder);
    checkFormat(folder);
    assert.equal(readFileSync(path, "utf8"), "1\n");
    for (const later of ["2\n", "2.1 beta"]) {
      writeFileSync(path, later);
      assert.throws(() => checkFormat(folder), {
        code: "config_invalid",
        message:
          /^the state in .* has the format "2.*" of a later release; this one reads formats up to 1: start the later/,
      });
      assert.equal(readFileSync(path, "utf8"), later);
    }
    // A crash may leave an empty file.
    writeFileSync(path, "");
    checkFormat(folder);
    assert.equal(readFileSync(path, "utf8"), "1\n");
  });

  it("does not prevent a start if it cannot be written", () => {
    const folder = newFolder();
    mkdirSync(join(folder, "format"), { recursive: true });
    checkFormat(folder);
  });
});
