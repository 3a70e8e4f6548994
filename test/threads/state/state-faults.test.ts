// Stored responses on a full disk: with a file size limit, which on Linux any user can set and lift, and on a small full file
// system, if the tests may mount one.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { StoredResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { StateClient } from "../../../actors/front/state-client.ts";
import { stateModule } from "../../../actors/placement.ts";
import { itemTexts } from "../../../http/responses/request/item-texts.ts";
import { ActorSystem } from "../../../runtime/actor/system.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { LmdbTables } from "../../../runtime/store/lmdb/lmdb-tables.ts";
import { TableStore } from "../../../runtime/store/table-store.ts";
import { spawnPlace } from "../../../runtime/thread/place.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-faults-"));
const mounts: string[] = [];
after(() => {
  for (const folder of mounts) execFileSync("umount", [folder]);
  rmSync(root, { recursive: true, force: true });
});

const limits = { maxEntries: 1000, maxBytes: 1e9, maxEntryBytes: 6e7, maxAgeMs: 1e9 };
const log = createLogger({ level: "silent", format: "text" });
const isUnavailable = (error: ServerError): boolean => error.code === "storage_unavailable";

function stored(id: string, bytes: number): StoredResponse {
  return {
    id,
    client: "client",
    previousId: null,
    createdAt: 1,
    model: "m",
    inputStart: null,
    outputStart: null,
    isRunning: false,
    status: "completed",
    isBackground: false,
    body: Buffer.alloc(bytes, 32),
    interrupted: null,
    settings: Buffer.from("}"),
    input: itemTexts([{ id }]),
    output: itemTexts([]),
    events: null,
  };
}

async function isReadable(store: StoredResponses, id: string): Promise<boolean> {
  const found = await store.find(id);
  return found !== null && (await store.slice({ spans: found.body, at: 0 })) !== null;
}

/** Checks a store while its disk is full, and after space has been freed. */
async function checkFaults(store: StoredResponses, fill: () => void, makeRoom: () => void): Promise<void> {
  await store.add(stored("before", 100_000));
  await store.add(stored("huge", 3e7));
  fill();
  // add() fails only when the free pages inside the database file are used up.
  let kept = 0;
  await assert.rejects(async () => {
    for (; kept < 1000; kept++) await store.add(stored(`small${kept}`, 100_000));
  }, isUnavailable);
  for (const bytes of [100_000, 2e7]) await assert.rejects(store.add(stored("large", bytes)), isUnavailable);
  assert.equal(await store.find("large"), null);
  assert.ok(await isReadable(store, "before"));
  assert.equal((await store.history("before")).length, 1);
  assert.equal(await store.delete("huge"), true);
  for (let i = 0; i < kept; i++) assert.equal(await store.delete(`small${i}`), true, `small${i} of ${kept}`);
  makeRoom();
  await store.add(stored("large", 2e7));
  assert.equal(await store.update({ ...stored("before", 300_000), status: "failed" }), "updated");
  assert.ok(await isReadable(store, "large"));
  assert.equal((await store.find("before"))?.status, "failed");
  assert.equal(await store.delete("large"), true);
}

function mountedFolder(megabytes: number): string | null {
  const folder = join(root, `mount${mounts.length}`);
  mkdirSync(folder);
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder], { stdio: "ignore" });
  } catch {
    return null;
  }
  mounts.push(folder);
  return folder;
}

function fillDisk(folder: string): void {
  const file = openSync(join(folder, "fill"), "w");
  try {
    for (;;) writeSync(file, Buffer.alloc(65_536));
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, "ENOSPC");
  } finally {
    closeSync(file);
  }
}

function canLimitFiles(): boolean {
  try {
    execFileSync("prlimit", ["--version"], { stdio: "ignore" });
    return process.platform === "linux";
  } catch {
    return false;
  }
}

describe("stored responses on a full disk", () => {
  it("stay readable, reject new ones with a specific error, and are written again as soon as there is room", async (t) => {
    if (!canLimitFiles()) {
      t.skip("no prlimit on this machine to limit the size of files with");
      return;
    }
    const place = await spawnPlace<object, null>({
      name: "state",
      module: stateModule,
      init: {
        folder: join(root, "limited"),
        mailboxLimit: 100,
        responses: limits,
        maxFileContentBytes: 2 ** 30,
        skillsFolder: null,
        shared: null,
      },
      kind: "process",
      startTimeoutMs: 10_000,
    });
    const responses = new ActorSystem("test").ref<StoredResponses>("responses", place.endpoint);
    const limit = (bytes: number | string): void => {
      execFileSync("prlimit", ["--pid", String(place.pid), `--fsize=${bytes}:`]);
    };
    // The limit is the current size of the file. A lower limit would also reject writes within the file.
    const sizeOfDatabase = (): number => {
      const folder = join(root, "limited");
      const name = readdirSync(folder, { recursive: true, encoding: "utf8" }).find((path) => path.endsWith("data.mdb"));
      return statSync(join(folder, name ?? "data.mdb")).size;
    };
    const store: StoredResponses = {
      add: (response) => responses.ask("add", response),
      update: (update) => responses.ask("update", update),
      begin: (id) => responses.ask("begin", id),
      claim: (request) => responses.ask("claim", request),
      giveUp: (id) => responses.ask("giveUp", id),
      release: (id) => responses.ask("release", id),
      find: (id) => responses.ask("find", id),
      list: (request) => responses.ask("list", request),
      delete: (id) => responses.ask("delete", id),
      slice: (request) => responses.ask("slice", request),
      page: (request) => responses.ask("page", request),
      item: (request) => responses.ask("item", request),
      history: (id) => responses.ask("history", id),
    };
    await checkFaults(
      store,
      () => limit(sizeOfDatabase()),
      () => limit("unlimited"),
    );
    await place.stop(2000);
  });

  it("behave so on a full file system, and do not start on one", async (t) => {
    const folder = mountedFolder(128);
    if (folder === null) {
      t.skip("these tests may not mount a file system");
      return;
    }
    const front = new StateClient({
      init: {
        folder: join(folder, "a"),
        mailboxLimit: 100,
        responses: limits,
        maxFileContentBytes: 2 ** 30,
        skillsFolder: null,
        shared: null,
      },
      log,
    });
    await front.start();
    const fill = (): void => fillDisk(folder);
    const makeRoom = (): void => rmSync(join(folder, "fill"));
    await checkFaults(front.responses, fill, makeRoom);
    await front.stop(1000);
    fill();
    const restarted = new StateClient({
      init: {
        folder: join(folder, "a"),
        mailboxLimit: 100,
        responses: limits,
        maxFileContentBytes: 2 ** 30,
        skillsFolder: null,
        shared: null,
      },
      log,
    });
    await restarted.start();
    assert.ok(await isReadable(restarted.responses, "before"), "an existing folder opens on a full file system");
    await restarted.stop(1000);
    const late = new StateClient({
      init: {
        folder: join(folder, "b"),
        mailboxLimit: 100,
        responses: limits,
        maxFileContentBytes: 2 ** 30,
        skillsFolder: null,
        shared: null,
      },
      log,
    });
    await assert.rejects(late.start(), (error: ServerError) => error.code === "config_invalid");
    await late.stop(1000);
    makeRoom();
    const tables = new LmdbTables(join(folder, "c"));
    const table = tables.table("a");
    fill();
    let refused = 0;
    // If a commit failed and corrupted the memory of this process, it would crash here.
    for (let i = 0; i < 2000; i++) {
      const value = Buffer.alloc(100 + ((i * 7919) % 30_000));
      const write = (): void => {
        for (let k = 0; k < 1 + (i % 5); k++) table.put([i % 300, k], value);
      };
      try {
        tables.transaction(write);
      } catch (error) {
        assert.ok(isUnavailable(error as ServerError), String(error));
        refused++;
      }
    }
    assert.ok(refused > 1000, `${refused} of 2000 writes were refused`);
    for (const key of table.first(1000)) tables.transaction(() => table.remove(key));
    assert.equal(table.first(1).length, 0, "a full disk can be cleared");
    makeRoom();
    tables.transaction(() => table.put(["after"], Buffer.alloc(5e6)));
    await tables.close();
    const again = new StateClient({
      init: {
        folder: join(folder, "b"),
        mailboxLimit: 100,
        responses: limits,
        maxFileContentBytes: 2 ** 30,
        skillsFolder: null,
        shared: null,
      },
      log,
    });
    await again.start();
    await again.responses.add(stored("a", 1000));
    await again.stop(1000);
  });

  it("are removed when they have expired, although the file system is full", async (t) => {
    const folder = mountedFolder(8);
    if (folder === null) {
      t.skip("these tests may not mount a file system");
      return;
    }
    let now = 1e12;
    const store = new TableStore<string>(new LmdbTables(join(folder, "a")), limits, () => now);
    let kept = 0;
    await assert.rejects(async () => {
      for (; kept < 10_000; kept++) {
        const parts = { body: Buffer.alloc(20_000) };
        await store.put(`entry${kept}`, { head: "", share: `client${kept % 10}`, expiresAt: now + 1000, parts });
      }
    }, isUnavailable);
    assert.ok(kept > 100, `${kept} entries are more than one transaction removes`);
    fillDisk(folder);
    now += 1e8;
    await store.sweep();
    // The list leaves out expired entries, so it is read at an earlier time.
    now -= 1e8;
    assert.deepEqual(store.list({ cursor: null, limit: 10 }).entries, []);
    await store.close();
  });
});
