import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { pack } from "msgpackr";
import type { ItemTexts, Span, StoredResponse, StoredResponses } from "../../../actors/api/stored-responses.ts";
import { StateClient } from "../../../actors/front/state-client.ts";
import type { StatePlaceInit } from "../../../actors/messages.ts";
import { stateModule } from "../../../actors/placement.ts";
import { itemTexts } from "../../../http/responses/request/item-texts.ts";
import type { Ref } from "../../../runtime/actor/ref.ts";
import { ActorSystem } from "../../../runtime/actor/system.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { createLogger, type Logger } from "../../../runtime/log/log.ts";
import { LmdbTables } from "../../../runtime/store/lmdb/lmdb-tables.ts";
import { type Place, spawnPlace } from "../../../runtime/thread/place.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-state-"));
after(() => rmSync(root, { recursive: true, force: true }));

const limits = { maxEntries: 10, maxBytes: 1e7, maxEntryBytes: 1e6, maxAgeMs: 1e6 };
const log = createLogger({ level: "silent", format: "text" });

function initOf(name: string): StatePlaceInit {
  return {
    folder: join(root, name),
    mailboxLimit: 100,
    responses: limits,
    maxFileContentBytes: 2 ** 30,
    skillsFolder: null,
    shared: null,
  };
}

function stateFront(init: StatePlaceInit): StateClient {
  return new StateClient({ init, log, minBackoffMs: 1 });
}

const bytes = (text: string): Uint8Array => Buffer.from(text);
const textOf = (items: ItemTexts): string => Buffer.from(items.texts).toString();

function stored(id: string, rest: Partial<StoredResponse> = {}): StoredResponse {
  const isRunning = rest.isRunning ?? false;
  return {
    id,
    client: "client",
    previousId: null,
    createdAt: 1,
    model: "m",
    inputStart: null,
    outputStart: null,
    isRunning,
    status: isRunning ? "in_progress" : "completed",
    isBackground: false,
    body: bytes("{"),
    interrupted: isRunning ? bytes("{!") : null,
    settings: bytes("}"),
    input: itemTexts([{ id }]),
    output: itemTexts([]),
    events: null,
    ...rest,
  };
}

async function read(store: StoredResponses, spans: readonly Span[] | undefined): Promise<string | null> {
  const slice = spans === undefined ? null : await store.slice({ spans, at: 0 });
  return slice === null ? null : Buffer.from(slice).toString();
}

/** Writes a database in the format of an earlier version, with the given tables and a stored entry count. */
async function writeEarlier(folder: string, names: readonly string[], entries: number): Promise<void> {
  const tables = new LmdbTables(folder);
  for (const name of names) tables.table(name);
  tables.transaction(() => tables.table("sums").put(["entries"], pack(entries)));
  await tables.close();
}

/** Waits for `count` turns of the event loop. */
async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise(setImmediate);
}

/** Starts the state thread's code in a separate process, which can be killed like a whole server. */
async function killable(init: StatePlaceInit): Promise<{ place: Place<null>; responses: Ref<StoredResponses> }> {
  const place = await spawnPlace<StatePlaceInit, null>({
    name: "state",
    module: stateModule,
    init,
    kind: "process",
    startTimeoutMs: 10_000,
  });
  return { place, responses: new ActorSystem("test").ref<StoredResponses>("responses", place.endpoint) };
}

describe("the state place", () => {
  it("keeps responses across restarts, and reports missing ones", async () => {
    const init = initOf("restart");
    const first = stateFront(init);
    await first.start();
    await first.responses.add(
      stored("a", { events: { first: 3, text: bytes("e") }, output: itemTexts([{ id: "out" }]) }),
    );
    await first.responses.add(stored("b", { previousId: "a", isRunning: true }));
    assert.equal(await first.responses.update(stored("none")), "evicted");
    assert.deepEqual(
      (await first.responses.history("b")).map(({ id, runner }) => [id, runner]),
      [
        ["a", null],
        ["b", "here"],
      ],
    );
    assert.equal(await first.responses.update(stored("b", { previousId: "a" })), "updated");
    await first.stop(1000);

    const second = stateFront(init);
    await second.start();
    const found = await second.responses.find("a");
    assert.deepEqual(
      [
        found?.runner,
        found?.status,
        await read(second.responses, found?.body),
        await read(second.responses, found?.events?.spans),
      ],
      [null, "completed", "{}", "e"],
    );
    assert.equal(found?.events?.first, 3);
    const turns = await second.responses.history("b");
    assert.deepEqual(
      turns.map(({ items }) => [items.ids, textOf(items), [...items.ends]]),
      [
        [["a", "out"], '{"id":"a"},{"id":"out"},', [10, 23]],
        [["b"], '{"id":"b"},', [10]],
      ],
    );
    assert.deepEqual([await second.responses.delete("a"), await second.responses.find("a")], [true, null]);
    assert.equal(await read(second.responses, found?.body), null);
    await assert.rejects(
      second.responses.history("b"),
      (error: ServerError) => error.code === "not_found" && /'a'/.test(error.message),
    );
    await second.stop(1000);
  });

  it("keeps its responses when it is killed; a running one is interrupted", async () => {
    const init = initOf("killed");
    const { place, responses } = await killable(init);
    await responses.ask("add", stored("ended"));
    await responses.ask("add", stored("running", { isRunning: true }));
    assert.deepEqual((await responses.ask("find", "running"))?.runner, "here");
    process.kill(place.pid!, "SIGKILL");
    await place.exit;

    const later = stateFront(init);
    await later.start();
    const found = await Promise.all(["ended", "running"].map((id) => later.responses.find(id)));
    assert.deepEqual(
      found.map((each) => each?.runner),
      [null, "nobody"],
    );
    assert.deepEqual([found[0]?.interrupted, await read(later.responses, found[1]?.interrupted ?? [])], [null, "{!}"]);
    assert.equal((await later.responses.history("running")).length, 1);
    await later.stop(1000);
  });

  it("is shared by two servers: a response running at the other one still runs", async () => {
    const init = initOf("shared");
    const other = await killable(init);
    const mine = stateFront(init);
    await mine.start();
    await other.responses.ask("add", stored("theirs", { isRunning: true }));
    assert.equal((await mine.responses.find("theirs"))?.runner, "elsewhere");
    await other.responses.ask("add", stored("unwanted", { isRunning: true }));
    assert.deepEqual(
      [
        await mine.responses.delete("unwanted"),
        await mine.responses.delete("unwanted"),
        await other.responses.ask("find", "unwanted"),
      ],
      [true, false, null],
    );
    assert.equal(await other.responses.ask("update", stored("unwanted")), "deleted");
    assert.equal(await mine.responses.find("unwanted"), null);
    await other.place.stop(2000);
    assert.equal((await mine.responses.find("theirs"))?.runner, "nobody");
    await mine.stop(1000);
  });

  it("keeps a response deleted if its server repeats a write whose reply was lost", async () => {
    const init = initOf("repeated");
    const other = await killable(init);
    const mine = stateFront(init);
    await mine.start();
    // "running" is deleted while it runs, "ended" after it has ended. After the deletion, the final state of
    // each response is written twice.
    for (const id of ["running", "ended"]) {
      await other.responses.ask("add", stored(id, { isRunning: true }));
      if (id === "ended") assert.equal(await other.responses.ask("update", stored(id)), "updated");
      assert.equal(await mine.responses.delete(id), true);
      for (let i = 0; i < 2; i++) assert.equal(await other.responses.ask("update", stored(id)), "deleted", id);
    }
    // "late" is added only when it has ended.
    await other.responses.ask("add", stored("late"));
    assert.equal(await mine.responses.delete("late"), true);
    for (const id of ["running", "ended", "late"]) {
      await other.responses.ask("add", stored(id));
      assert.deepEqual([await mine.responses.find(id), await other.responses.ask("find", id)], [null, null], id);
    }
    await Promise.all([other.place.stop(2000), mine.stop(1000)]);
  });

  it("keeps a response deleted, in any order of its deletion and its end", async () => {
    const init = { ...initOf("race"), responses: { ...limits, maxEntries: 1000 } };
    const other = await killable(init);
    const mine = stateFront(init);
    await mine.start();
    const seen = new Set<string>();
    for (let round = 0; round < 150; round++) {
      const id = `r${round}`;
      await other.responses.ask("add", stored(id, { isRunning: true }));
      const [deleted, updated] = await Promise.all([
        round % 2 === 0 ? mine.responses.delete(id) : turns(round % 7).then(() => mine.responses.delete(id)),
        other.responses.ask("update", stored(id)),
      ]);
      assert.deepEqual(
        [deleted, await mine.responses.find(id), await other.responses.ask("find", id)],
        [true, null, null],
        id,
      );
      assert.notEqual(updated, "evicted");
      seen.add(updated);
    }
    await Promise.all([other.place.stop(2000), mine.stop(1000)]);
    assert.ok(seen.size > 0);
  });

  it("removes the responses of an earlier version and reports their number; another database stays", async () => {
    const lines: object[] = [];
    const warn = ((fields: object) => void lines.push(fields)) as Logger["warn"];
    const init = initOf("upgraded");
    const folder = join(init.folder!, "responses");
    for (const [tables, isRemoved] of [
      [["ages", "heads", "rests", "sums"], true],
      [["heads", "others", "rests", "sums"], false],
    ] as const) {
      await writeEarlier(folder, tables, 3);
      const front = new StateClient({ init, log: { ...log, warn } });
      await front.start();
      await front.responses.add(stored("a"));
      assert.equal((await front.responses.find("a"))?.status, "completed");
      await front.stop(1000);
      assert.equal(existsSync(folder), !isRemoved);
      const [line] = lines.splice(0) as { entries: number; bytes: number; folder: string }[];
      assert.deepEqual([line?.entries, line?.folder], isRemoved ? [3, folder] : [undefined, undefined]);
    }
  });

  it("keeps all in memory without a folder", async () => {
    const front = stateFront({ ...initOf(""), folder: null });
    await front.start();
    await front.responses.add(stored("a", { body: Buffer.alloc(600_000, 32) }));
    const found = await front.responses.find("a");
    const slices = [];
    for (let at = 0; at < 600_001; at += slices.at(-1)!.length) {
      slices.push(Buffer.from((await front.responses.slice({ spans: found!.body, at })) ?? []));
    }
    assert.equal(Buffer.concat(slices).toString(), `${" ".repeat(600_000)}}`);
    assert.ok(slices.length > 1);
    assert.equal(await front.responses.delete("a"), true);
    await front.stop(1000);
  });

  it("does not start if its folder is a file, and says so", async () => {
    writeFileSync(join(root, "file"), "");
    const front = stateFront(initOf("file/inside"));
    await assert.rejects(
      front.start(),
      (error: ServerError) => error.code === "config_invalid" && /cannot keep state/.test(error.message),
    );
    await assert.rejects(front.responses.find("a"), (error: ServerError) => error.code === "peer_gone");
    await front.stop(1000);
  });
});
