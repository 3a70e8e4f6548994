import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, describe, it } from "node:test";
import { ownRunAdapter } from "../../../../actors/models/served-model.ts";
import { transitionRows } from "../../../../actors/models/transitions.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { code, markdownTable } from "../../../../runtime/markdown-table.ts";
import { come, Lives, policy, turns, watch } from "./lifecycle-rig.ts";

let lives = new Lives();

afterEach(async () => {
  await lives.close();
});

function createLives(seats: number | null = null): Lives {
  lives = new Lives(seats);
  return lives;
}

describe("the table of transitions", () => {
  it("is the one in docs/models.md", () => {
    const text = readFileSync(new URL("../../../../../docs/models.md", import.meta.url), "utf8");
    const rows = transitionRows().map(({ from, to, reason, when }) => [code(from), code(to), code(reason), when]);
    assert.ok(text.includes(markdownTable(["from", "to", "reason", "when"], rows)), "docs/models.md has another table");
  });

  it("leads from every status to every other one, and back to loaded only over reloading", () => {
    const pairs = new Set(transitionRows().map(({ from, to }) => `${from} ${to}`));
    assert.deepEqual([...pairs].sort(), [
      "loaded reloading",
      "loaded unloaded",
      "reloading loaded",
      "reloading unloaded",
      "unloaded reloading",
    ]);
  });
});

describe("a model that is loaded with the server", () => {
  it("refuses requests until it is loaded, and then takes them", async () => {
    const tested = createLives().create("a", { loadsAtStart: true });
    assert.equal(tested.life.status, "reloading");
    assert.equal((await tested.life.enter(null, "client").catch((error) => error)).code, "model_loading");
    const started = watch(tested.life.start().then(() => true));
    await turns();
    assert.equal(come(tested).state, "waits");
    await turns();
    assert.equal(started.isSettled, false);
    await tested.places[0]?.up();
    assert.equal(started.value, true);
    const request = come(tested);
    await turns();
    assert.equal(request.state, "in");
    assert.deepEqual(tested.moves, ["reloading (start)", "loaded (ready)"]);
    assert.deepEqual(tested.attached, ["place 0"]);
  });

  it("fails the start with its own error", async () => {
    const tested = createLives().create("a", { loadsAtStart: true });
    const started = assert.rejects(tested.life.start(), { code: "model_file_invalid" });
    await turns();
    await tested.places[0]?.fail();
    await started;
    assert.equal(tested.life.status, "unloaded");
  });

  it("has its own adapter loaded before it is attached", async () => {
    const own = { generation: "f".repeat(64), path: "/adapters/own.gguf", rank: 1, bytes: 1 };
    const lives = createLives();
    const plain = lives.create("plain");
    const tested = await lives.loaded("a", { served: { ...plain.life.served, ownAdapter: own } });
    assert.deepEqual(tested.places[0]?.adapters, [
      { id: ownRunAdapter.id, generation: own.generation, path: own.path },
    ]);
  });
});

describe("a model that is not loaded", () => {
  it("is loaded for a request, which waits and runs", async () => {
    const tested = createLives().create("a");
    const [first, second] = [come(tested), come(tested)];
    await turns();
    assert.equal(tested.life.status, "reloading");
    assert.deepEqual([first.state, second.state, tested.places.length], ["waits", "waits", 1]);
    await tested.places[0]?.up();
    assert.deepEqual([first.state, second.state, tested.life.inFlight], ["in", "in", 2]);
    assert.deepEqual(tested.moves, ["reloading (request)", "loaded (ready)"]);
  });

  it("shares the places of those that wait: another client takes that of the newest of the one that has most", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const many = [come(tested), come(tested), come(tested), come(tested)];
    const [one, two] = [come(tested, null, "one"), come(tested, null, "two")];
    const three = come(tested, null, "three");
    const states = (requests: typeof many) => requests.map(({ state }) => state);
    await turns();
    assert.deepEqual(states(many), ["waits", "queue_full", "queue_full", "queue_full"]);
    assert.deepEqual(states([one, two, three]), ["waits", "waits", "waits"]);
    assert.match(many[3]?.error?.message ?? "", /another client/);
    const [again, four] = [come(tested), come(tested, null, "four")];
    await turns();
    assert.deepEqual(states([again, four]), ["queue_full", "queue_full"], "one place each is fair");
    await tested.places[0]?.up();
    assert.deepEqual(states([...many.slice(0, 1), one, two, three]), ["in", "in", "in", "in"]);
    assert.equal(lives.clock.pendingCount, 0);
  });

  it("lets no more requests wait than may, none longer than a load may take, and each leave at once", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const leaving = new AbortController();
    const waiting = [come(tested, leaving.signal), come(tested), come(tested), come(tested)];
    const beyond = come(tested);
    await turns();
    assert.equal(beyond.state, "queue_full");
    leaving.abort();
    await turns();
    assert.equal(waiting[0]?.state, "cancelled");
    await lives.clock.advance(60_000);
    assert.deepEqual(
      waiting.slice(1).map(({ state }) => state),
      ["model_loading", "model_loading", "model_loading"],
    );
    await tested.places[0]?.up();
    assert.equal(tested.life.status, "loaded");
    assert.equal(lives.clock.pendingCount, 0);
  });

  it("tells those who wait why it cannot be loaded, and others for a while; a reload tries at once", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const request = come(tested);
    await turns();
    await tested.places[0]?.fail();
    assert.equal(request.state, "model_failed");
    assert.match(request.error?.message ?? "", /the file is damaged/);
    assert.deepEqual(tested.moves, ["reloading (request)", "unloaded (failed)"]);
    await lives.clock.advance(policy.maxBackoffMs - 4500);
    const later = come(tested);
    await turns();
    assert.deepEqual([later.state, later.error?.retryAfterSeconds], ["model_failed", 5]);
    assert.equal(tested.life.outcome.error?.code, "model_failed");
    const reloaded = watch(tested.life.reload());
    await turns();
    const duringReload = come(tested);
    await turns();
    assert.equal(duringReload.state, "waits");
    await tested.places[1]?.fail();
    assert.deepEqual([reloaded.value?.status, reloaded.value?.error?.code], ["unloaded", "model_failed"]);
    await lives.clock.advance(policy.maxBackoffMs);
    const last = come(tested);
    await turns();
    await tested.places[2]?.up();
    assert.equal(last.state, "in");
    assert.equal(tested.life.outcome.error, null);
  });

  it("is tried again by itself where that can help, while requests wait", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const request = come(tested);
    await turns();
    await tested.places[0]?.fail(new ServerError("peer_gone", "it died while it started"));
    await lives.clock.advance(0);
    assert.deepEqual([request.state, tested.places.length], ["waits", 2]);
    await tested.places[1]?.up();
    assert.equal(request.state, "in");
    assert.deepEqual(tested.moves, ["reloading (request)", "loaded (ready)"]);
  });
});

describe("a model whose engine dies", () => {
  it("comes back by itself, and meanwhile has requests come again", async () => {
    const lives = createLives();
    const tested = await lives.loaded("a");
    await tested.places[0]?.crash();
    const refused = come(tested);
    await turns();
    assert.equal(refused.state, "model_loading");
    assert.deepEqual(await tested.life.reload(), { id: "a", status: "reloading", error: null });
    await lives.clock.advance(0);
    await tested.places[1]?.up();
    const request = come(tested);
    await turns();
    assert.equal(request.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["reloading (crash)", "loaded (ready)"]);
  });

  it("is not made to wait for by the work that was to be done on it", async () => {
    const tested = await createLives().loaded("a");
    const task = tested.life.whileLoaded(async (model) => await model.ask("statistics", null));
    assert.equal(tested.life.inFlight, 1);
    await task;
    assert.equal(tested.life.inFlight, 0);
    void tested.life.unload();
    await assert.rejects(
      tested.life.whileLoaded(async () => {}),
      { code: "model_state_conflict" },
    );
  });
});

describe("a model that nobody uses", () => {
  it("is unloaded after a while without requests", async () => {
    const lives = createLives();
    const tested = await lives.loaded("a", { idleUnloadMs: 1000 });
    await lives.clock.advance(900);
    const request = come(tested);
    await turns();
    await lives.clock.advance(5000);
    assert.equal(tested.life.status, "loaded");
    request.leave();
    await lives.clock.advance(999);
    assert.equal(tested.life.status, "loaded");
    await lives.clock.advance(1);
    await turns();
    assert.equal(tested.life.status, "unloaded");
    assert.equal(tested.moves.at(-1), "unloaded (idle)");
    assert.equal(lives.clock.pendingCount, 0);
  });
});
