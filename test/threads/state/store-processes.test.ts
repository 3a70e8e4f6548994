// Store shared by several processes through one folder: compare-and-set between processes, and one process that watches the
// changes of another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { makeLockFile } from "../../../runtime/store/lmdb/database-file.ts";
import { LmdbTables } from "../../../runtime/store/lmdb/lmdb-tables.ts";
import { TableStore } from "../../../runtime/store/table-store.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-processes-"));
after(() => rmSync(root, { recursive: true, force: true }));

const limits = { maxEntries: 1000, maxBytes: 1e8, maxEntryBytes: 1e6, maxAgeMs: 1e9 };
const program = fileURLToPath(new URL("../../fixtures/store/store-counter.js", import.meta.url));
const count = async (folder: string, rounds: number): Promise<number> =>
  Number((await promisify(execFile)(process.execPath, [program, folder, String(rounds)])).stdout);

const open = (folder: string): TableStore<{ readonly count: number }> => new TableStore(new LmdbTables(folder), limits);

describe("a store that processes share", () => {
  it("loses no increment of three processes that set one counter", async () => {
    const folder = join(root, "counter");
    const lost = await Promise.all([count(folder, 200), count(folder, 200), count(folder, 200)]);
    const store = open(folder);
    assert.equal(store.get("counter")?.head.count, 600);
    assert.ok(Math.max(...lost) > 0, "no two ever met");
    await store.close();
  });

  it("loses no commit that was made while another process opened the store", async () => {
    const folder = join(root, "opened");
    const store = open(folder);
    for (const key of ["first", "last"]) await store.put(key, { head: { count: 1 }, share: "all", parts: {} });
    // What LMDB does in a process that opens the store: it sets the number of the last commit to the one that it read before.
    const program = `const { openSync, readSync, writeSync } = require("node:fs");
      const file = openSync(${JSON.stringify(join(folder, "lock.mdb"))}, "r+");
      const number = new BigUint64Array(1);
      readSync(file, number, 0, 8, 8);
      number[0]--;
      writeSync(file, number, 0, 8, 8);`;
    await promisify(execFile)(process.execPath, ["-e", program]);
    await store.put("next", { head: { count: 1 }, share: "all", parts: {} });
    assert.deepEqual(
      ["first", "last", "next"].map((key) => store.get(key)?.head.count),
      [1, 1, 1],
    );
    await store.close();
  });

  it("has a lock file that appears as a whole, so that no process resets the locks of another", async () => {
    const path = join(root, "lock.mdb");
    // A thread looks at the size of the file again and again while this one makes and removes it.
    const sizes = new Worker(
      `const { statSync } = require("node:fs");
       const { parentPort, workerData } = require("node:worker_threads");
       const sizes = new Set();
       const end = performance.now() + 1000;
       parentPort.postMessage("ready");
       while (performance.now() < end) sizes.add(statSync(workerData, { throwIfNoEntry: false })?.size ?? null);
       parentPort.postMessage([...sizes]);`,
      { eval: true, workerData: path },
    );
    await once(sizes, "message");
    const seen = once(sizes, "message");
    for (const end = performance.now() + 900; performance.now() < end; rmSync(path)) makeLockFile(path);
    const [found] = (await seen) as [(number | null)[]];
    assert.deepEqual(found.sort(), [16_384, null]);
  });

  it("tells a watcher what another process has put and deleted", async () => {
    const folder = join(root, "watched");
    const store = open(folder);
    await store.put("doomed", { head: { count: 0 }, share: "all", parts: {} });
    const [seen, deaths] = [new Set<string | null>(), [] as (number | null)[]];
    let counts = 0;
    store.watch({ prefix: "do" }, (key) => seen.add(key));
    store.watch({ key: "counter" }, () => counts++);
    store.watch({ key: "doomed" }, () => deaths.push(store.get("doomed")?.version ?? null));
    await count(folder, 50);
    await sleep(300);
    assert.deepEqual([[...seen].sort(), deaths], [["done", "doomed"], [null]]);
    assert.ok(counts >= 1 && counts <= 50, `${counts} times`);
    assert.equal(store.get("counter")?.head.count, 50);
    await store.close();
  });
});
