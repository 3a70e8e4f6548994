import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { StatePlaceInit } from "../../actors/messages.ts";
import { stateModule } from "../../actors/placement.ts";
import { StateFront } from "../../actors/state-front.ts";
import type { StoredResponse, StoredResponses } from "../../actors/stored-responses.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import type { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-state-"));
after(() => rmSync(root, { recursive: true, force: true }));

const limits = { maxEntries: 10, maxBytes: 1e7, maxEntryBytes: 1e6, maxAgeMs: 1e6 };
const restart = { kind: "restart", minBackoffMs: 1, maxBackoffMs: 1, resetAfterMs: 1e6, maxRestarts: 1 } as const;
const log = createLogger({ level: "silent", format: "text" });

function initOf(name: string): StatePlaceInit {
  return { folder: join(root, name), mailboxLimit: 100, responses: limits };
}

function stateFront(init: StatePlaceInit): StateFront {
  return new StateFront({ init, restart, log });
}

function stored(id: string, rest: Partial<StoredResponse> = {}): StoredResponse {
  const items = JSON.stringify([{ id }]);
  return { id, previousId: null, isRunning: false, body: "{}", items, inputCount: 1, events: null, ...rest };
}

/** The state place in a process of its own, which can be killed as a whole server can. */
async function killable(init: StatePlaceInit): Promise<{ place: Place<null>; responses: Ref<StoredResponses> }> {
  const place = await spawnPlace<StatePlaceInit, null>({
    name: "state",
    module: stateModule,
    init,
    carrier: "process",
    startTimeoutMs: 10_000,
  });
  return { place, responses: new ActorSystem("test").ref<StoredResponses>("responses", place.endpoint) };
}

describe("the state place", () => {
  it("keeps long texts as the bytes they come as", async () => {
    const front = stateFront(initOf("bytes"));
    await front.start();
    const [body, text] = ['{"a":"é"}', "data: é\n\n"].map((long) => Buffer.from(long));
    await front.add(stored("a", { body: body!, events: { first: 1, text: text! } }));
    const found = await front.get("a");
    assert.ok(found?.body instanceof Uint8Array && found.events?.text instanceof Uint8Array);
    assert.deepEqual([Buffer.from(found.body), Buffer.from(found.events.text)], [body, text]);
    await front.stop(1000);
  });

  it("keeps responses across restarts, and says what there is not", async () => {
    const init = initOf("restart");
    const first = stateFront(init);
    await first.start();
    await first.add(stored("a", { events: { first: 3, text: "e" } }));
    await first.add(stored("b", { previousId: "a", isRunning: true }));
    assert.equal(await first.update(stored("none")), "evicted");
    assert.deepEqual(
      (await first.history("b")).map(({ id, runner }) => [id, runner]),
      [
        ["a", null],
        ["b", "here"],
      ],
    );
    assert.equal(await first.update(stored("b", { previousId: "a" })), "updated");
    await first.stop(1000);

    const second = stateFront(init);
    await second.start();
    const { isRunning: _, ...a } = stored("a", { events: { first: 3, text: "e" } });
    assert.deepEqual(await second.get("a"), { ...a, runner: null });
    assert.deepEqual(
      (await second.history("b")).map(({ items }) => items),
      ['[{"id":"a"}]', '[{"id":"b"}]'],
    );
    assert.deepEqual([await second.delete("a"), await second.get("a")], [true, null]);
    await assert.rejects(
      second.history("b"),
      (error: ServerError) => error.code === "not_found" && /'a'/.test(error.message),
    );
    await second.stop(1000);
  });

  it("has what it had when it is killed, and what ran then is interrupted", async () => {
    const init = initOf("killed");
    const { place, responses } = await killable(init);
    await responses.ask("add", stored("ended"));
    await responses.ask("add", stored("running", { isRunning: true }));
    assert.deepEqual((await responses.ask("get", "running"))?.runner, "here");
    process.kill(place.pid!, "SIGKILL");
    await place.exit;

    const later = stateFront(init);
    await later.start();
    const found = await Promise.all(["ended", "running"].map((id) => later.get(id)));
    assert.deepEqual(
      found.map((each) => each?.runner),
      [null, "nobody"],
    );
    assert.equal((await later.history("running")).length, 1);
    await later.stop(1000);
  });

  it("is shared by two servers: what runs at the other one still runs", async () => {
    const init = initOf("shared");
    const other = await killable(init);
    const mine = stateFront(init);
    await mine.start();
    await other.responses.ask("add", stored("theirs", { isRunning: true }));
    assert.equal((await mine.get("theirs"))?.runner, "elsewhere");
    await other.responses.ask("add", stored("unwanted", { isRunning: true }));
    assert.deepEqual(
      [await mine.delete("unwanted"), await mine.delete("unwanted"), await other.responses.ask("get", "unwanted")],
      [true, false, null],
    );
    assert.equal(await other.responses.ask("update", stored("unwanted")), "deleted");
    assert.equal(await mine.get("unwanted"), null);
    await other.place.stop(2000);
    assert.equal((await mine.get("theirs"))?.runner, "nobody");
    await mine.stop(1000);
  });

  it("does not start in a folder that is none, and says so", async () => {
    writeFileSync(join(root, "file"), "");
    const front = stateFront(initOf("file/inside"));
    await assert.rejects(
      front.start(),
      (error: ServerError) => error.code === "config_invalid" && /cannot keep state/.test(error.message),
    );
    await assert.rejects(front.get("a"), (error: ServerError) => error.code === "peer_gone");
    await front.stop(1000);
  });
});
