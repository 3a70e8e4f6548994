import assert from "node:assert/strict";
import { rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { type PrefixContent, prefixFileBytes } from "../../../../engines/decoding/prefix-store/prefix-file.ts";
import { PrefixStore } from "../../../../engines/decoding/prefix-store/prefix-store.ts";
import { bytesOf, contentOf, filesIn, model, otherModel, temporaryFolder, tokensOf } from "./rig.ts";

interface StoreRig {
  readonly folder?: string;
  readonly maxBytes?: number;
  readonly of?: typeof model;
}

async function openStore(test: TestContext, { folder, maxBytes = 2 ** 30, of = model }: StoreRig = {}) {
  const notices: string[] = [];
  const path = folder ?? temporaryFolder(test);
  const store = await PrefixStore.open({ folder: path, maxBytes }, of, (message) => notices.push(message));
  test.after(() => store.dispose());
  return { store, folder: path, notices };
}

/** Adds the contents to the store and waits until they have been written. */
async function write(store: PrefixStore, ...contents: readonly PrefixContent[]): Promise<void> {
  for (const { adapter, tokens, bytes } of contents) store.put(adapter, tokens, bytes);
  await store.flush();
}

async function readFound(store: PrefixStore, tokens: Int32Array, adapter = "") {
  const found = store.find(adapter, tokens);
  return found && (await store.read(found));
}

describe("the store of prefixes", () => {
  it("returns what was put, also after a restart", async (test) => {
    const { store, folder } = await openStore(test);
    await write(store, contentOf(1), contentOf(2, 70, 0));
    assert.deepEqual(await readFound(store, tokensOf(1, 100)), contentOf(1));
    await store.dispose();
    const { store: next } = await openStore(test, { folder });
    assert.equal(next.fileCount, 2);
    assert.deepEqual(await readFound(next, tokensOf(1, 100)), contentOf(1));
    assert.deepEqual(await readFound(next, tokensOf(2, 100)), contentOf(2, 70, 0));
  });

  it("is found by longer, shorter and diverging prompts", async (test) => {
    const { store } = await openStore(test);
    await write(store, contentOf(1));
    const usable = (tokens: Int32Array) => store.find("", tokens)?.usable ?? null;
    const other = tokensOf(1, 200);
    other[80] = 7;
    assert.deepEqual([tokensOf(1, 500), tokensOf(1, 80), other].map(usable), [100, 80, 80]);
    assert.deepEqual([tokensOf(1, 63), tokensOf(2, 100), new Int32Array(0)].map(usable), [null, null, null]);
    assert.equal(store.find("", tokensOf(1, 80))?.tokens, 100);
    assert.equal(store.find("an adapter", tokensOf(1, 100)), null);
  });

  it("has one file for a conversation that grows, in whatever order its parts arrive", async (test) => {
    const { store, folder } = await openStore(test);
    const wanted = [100, 300, 200, 50].map((count) => {
      const isWanted = store.wants("", tokensOf(1, count));
      store.put("", tokensOf(1, count), bytesOf(1, 10));
      return isWanted;
    });
    assert.deepEqual(wanted, [true, true, false, false]);
    await store.flush();
    assert.deepEqual([store.fileCount, store.counts.writes, filesIn(folder).length], [1, 2, 1]);
    for (const count of [100, 300, 200]) await write(store, contentOf(1, count));
    assert.ok(!store.wants("", tokensOf(1, 300)) && store.wants("", tokensOf(1, 301)));
    assert.ok(store.wants("an adapter", tokensOf(1, 300)));
    assert.deepEqual([store.fileCount, store.counts.writes, filesIn(folder).length], [1, 2, 1]);
    assert.equal(store.find("", tokensOf(1, 400))?.usable, 300);
  });

  it("reads what was found before something longer replaced it", async (test) => {
    const { store, folder } = await openStore(test);
    await write(store, contentOf(1));
    const found = store.find("", tokensOf(1, 100));
    store.put("", tokensOf(1, 200), bytesOf(1, 10));
    assert.ok(found);
    assert.deepEqual(await store.read(found), contentOf(1));
    await store.flush();
    assert.equal(store.find("", tokensOf(1, 400))?.usable, 200);
    assert.equal((await readFound(store, tokensOf(1, 400)))?.tokens.length, 200);
    assert.equal(filesIn(folder).length, 1);
  });

  it("separates models that share a folder, and makes room for one at the cost of the other", async (test) => {
    const maxBytes = 1.5 * prefixFileBytes(model, contentOf(1));
    const { store, folder, notices } = await openStore(test, { maxBytes });
    const { store: other } = await openStore(test, { folder, maxBytes, of: otherModel });
    await write(store, contentOf(1));
    assert.equal(other.find("", tokensOf(1, 100)), null);
    await write(other, contentOf(1));
    assert.equal(await readFound(store, tokensOf(1, 100)), null);
    assert.equal(store.find("", tokensOf(1, 100)), null);
    assert.deepEqual(await readFound(other, tokensOf(1, 100)), contentOf(1));
    assert.match(notices.join(), /a stored prefix is lost and will be computed again: ENOENT/);
  });

  it("forgets files removed for room, without a notice", async (test) => {
    const { store, notices } = await openStore(test, { maxBytes: 1.5 * prefixFileBytes(model, contentOf(1)) });
    await write(store, contentOf(1), contentOf(2));
    assert.deepEqual([store.fileCount, store.find("", tokensOf(1, 100))], [1, null]);
    assert.deepEqual([store.counts, notices], [{ reads: 0, losses: 0, writes: 2, failedWrites: 0 }, []]);
  });

  it("treats a damaged file as missing, reports and removes it", async (test) => {
    const { store, folder, notices } = await openStore(test);
    const damage: ((path: string) => void)[] = [
      (path) => truncateSync(path, 900),
      (path) => writeFileSync(path, "something else"),
      (path) => writeFileSync(path, ""),
    ];
    for (const [seed, spoil] of damage.entries()) {
      await write(store, contentOf(seed));
      for (const path of filesIn(folder)) spoil(path);
      assert.equal(await readFound(store, tokensOf(seed, 100)), null);
      assert.deepEqual([store.find("", tokensOf(seed, 100)), filesIn(folder)], [null, []]);
    }
    assert.deepEqual([store.counts.losses, notices.length], [3, 3]);
    assert.match(notices[0] ?? "", /: [0-9a-f]{32}\.troupe-kv: it has 900 bytes, and should have \d+$/);
    await write(store, contentOf(1));
    assert.deepEqual(await readFound(store, tokensOf(1, 100)), contentOf(1));
  });

  it("opens a folder in any state", async (test) => {
    const { store, folder } = await openStore(test);
    await write(store, contentOf(1), contentOf(2), contentOf(3));
    await store.dispose();
    const [first = "", second = ""] = filesIn(folder);
    truncateSync(first, 40);
    writeFileSync(second, Buffer.alloc(5000, 255));
    writeFileSync(join(folder, "notes.txt"), "mine");
    const { store: next, notices } = await openStore(test, { folder });
    assert.deepEqual([next.fileCount, notices], [1, []]);
  });

  it("keeps one file if a process died between writing a longer prefix and removing the shorter", async (test) => {
    const { store, folder } = await openStore(test);
    const { store: twin } = await openStore(test, { folder });
    await write(store, contentOf(1, 100));
    await write(twin, contentOf(1, 200));
    assert.equal(filesIn(folder).length, 2);
    const { store: next } = await openStore(test, { folder });
    assert.equal(next.fileCount, 1);
    assert.equal((await readFound(next, tokensOf(1, 300)))?.tokens.length, 200);
    assert.equal(filesIn(folder).length, 1);
  });

  it("continues if it cannot write, and reports it once", async (test) => {
    const { store, folder, notices } = await openStore(test);
    rmSync(folder, { recursive: true });
    await write(store, contentOf(1), contentOf(1, 200));
    const { failedWrites } = store.counts;
    assert.deepEqual([failedWrites, store.fileCount], [2, 0]);
    assert.match(notices[0] ?? "", /^the KV of a prompt was not stored: ENOENT/);
  });

  it("handles many puts, finds and reads at a time", async (test) => {
    const { store, folder } = await openStore(test);
    const seeds = Array.from({ length: 40 }, (_, i) => i + 1);
    const read = seeds.map(async (seed) => {
      const found = readFound(store, tokensOf(seed, 100));
      store.put("", tokensOf(seed, 100), bytesOf(seed, 5000));
      store.put("", tokensOf(seed, 80), bytesOf(seed, 50));
      return found;
    });
    assert.deepEqual(new Set(await Promise.all(read)), new Set([null]));
    await store.flush();
    assert.deepEqual([store.fileCount, filesIn(folder).length], [40, 40]);
    const all = await Promise.all(seeds.map((seed) => readFound(store, tokensOf(seed, 100))));
    assert.deepEqual(
      all,
      seeds.map((seed) => contentOf(seed, 100, 5000)),
    );
  });

  it("reads a file once for simultaneous reads", async (test) => {
    const { store } = await openStore(test);
    await write(store, contentOf(1));
    const found = store.find("", tokensOf(1, 100));
    assert.ok(found);
    const [one, other] = await Promise.all([store.read(found), store.read(found)]);
    assert.deepEqual([one, one === other, store.counts.reads], [contentOf(1), true, 1]);
    assert.deepEqual(await store.read(found), contentOf(1));
    assert.equal(store.counts.reads, 2);
  });

  it("copies tokens, and bytes in shared memory", async (test) => {
    const { store } = await openStore(test);
    const tokens = tokensOf(1, 100);
    const shared = new Uint8Array(new SharedArrayBuffer(1000));
    shared.set(bytesOf(1, 1000));
    const memory = new Uint8Array(3000);
    memory.set(bytesOf(2, 1000), 1000);
    store.put("", tokens, shared);
    store.put("", tokensOf(2, 100), memory.subarray(1000, 2000));
    tokens.fill(0);
    await store.flush();
    assert.deepEqual(await readFound(store, tokensOf(1, 100)), contentOf(1));
    assert.deepEqual(await readFound(store, tokensOf(2, 100)), contentOf(2));
    assert.equal(memory.length, 3000);
  });

  it("is empty, without an error, once its thread has ended", async (test) => {
    const { store, notices } = await openStore(test);
    await write(store, contentOf(1));
    const found = store.find("", tokensOf(1, 100));
    await store.dispose();
    assert.ok(found);
    assert.equal(await store.read(found), null);
    await write(store, contentOf(2));
    assert.deepEqual([store.fileCount, store.counts.failedWrites], [0, 1]);
    assert.deepEqual(notices, []);
  });

  it("is refused with the setting's name if the folder is not usable", async (test) => {
    const file = join(temporaryFolder(test), "file");
    writeFileSync(file, "");
    await assert.rejects(PrefixStore.open({ folder: file, maxBytes: 2 ** 20 }, model), {
      name: "ServerError",
      code: "config_invalid",
      param: "prefix_cache_dir",
    });
  });
});
