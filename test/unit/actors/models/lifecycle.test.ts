import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, describe, it } from "node:test";
import { ownRunAdapter } from "../../../../actors/models/served-model.ts";
import { transitions } from "../../../../actors/models/transitions.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { code, markdownTable } from "../../../../runtime/markdown-table.ts";
import { come, ModelRig, policy, turns, watch } from "./lifecycle-rig.ts";

let rig = new ModelRig();

afterEach(async () => {
  await rig.close();
});

function createRig(slots: number | null = null): ModelRig {
  rig = new ModelRig(slots);
  return rig;
}

describe("the table of transitions", () => {
  it("is the same in docs/models.md", () => {
    const text = readFileSync(new URL("../../../../../docs/models.md", import.meta.url), "utf8");
    const rows = transitions.map(([from, to, reason, when]) => [code(from), code(to), code(reason), when]);
    assert.ok(text.includes(markdownTable(["from", "to", "reason", "when"], rows)), "docs/models.md has another table");
  });

  it("leads from every status to every other, to loaded only from reloading", () => {
    const pairs = new Set(transitions.map(([from, to]) => `${from} ${to}`));
    assert.deepEqual([...pairs].sort(), [
      "loaded reloading",
      "loaded unloaded",
      "reloading loaded",
      "reloading unloaded",
      "unloaded reloading",
    ]);
  });
});

describe("a model that is loaded at the start of the server", () => {
  it("refuses requests until it is loaded, then admits them", async () => {
    const tested = createRig().create("a", { loadsAtStart: true });
    assert.equal(tested.managed.status, "reloading");
    assert.equal((await tested.managed.enter(null, "client").catch((error) => error)).code, "model_loading");
    const started = watch(tested.managed.start().then(() => true));
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

  it("fails the start with the error of its load", async () => {
    const tested = createRig().create("a", { loadsAtStart: true });
    const started = assert.rejects(tested.managed.start(), { code: "model_file_invalid" });
    await turns();
    await tested.places[0]?.fail();
    await started;
    assert.equal(tested.managed.status, "unloaded");
  });

  it("loads its fixed adapter before it is attached", async () => {
    const own = { generation: "f".repeat(64), path: "/adapters/own.gguf", rank: 1, bytes: 1 };
    const rig = createRig();
    const plain = rig.create("plain");
    const tested = await rig.loaded("a", { served: { ...plain.managed.served, ownAdapter: own } });
    assert.deepEqual(tested.places[0]?.adapters, [
      { id: ownRunAdapter.id, generation: own.generation, path: own.path },
    ]);
  });
});

describe("a model that is not loaded", () => {
  it("is loaded for a request, which waits", async () => {
    const tested = createRig().create("a");
    const [first, second] = [come(tested), come(tested)];
    await turns();
    assert.equal(tested.managed.status, "reloading");
    assert.deepEqual([first.state, second.state, tested.places.length], ["waits", "waits", 1]);
    await tested.places[0]?.up();
    assert.deepEqual([first.state, second.state, tested.managed.gate.inFlight], ["in", "in", 2]);
    assert.deepEqual(tested.moves, ["reloading (request)", "loaded (ready)"]);
  });

  it("shares the waiting places: a new client displaces the newest request of the client with most", async () => {
    const rig = createRig();
    const tested = rig.create("a");
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
    assert.deepEqual(states([again, four]), ["queue_full", "queue_full"], "each client has one place");
    await tested.places[0]?.up();
    assert.deepEqual(states([...many.slice(0, 1), one, two, three]), ["in", "in", "in", "in"]);
    assert.equal(rig.clock.pendingCount, 0);
  });

  it("limits the number of waiting requests and their time, and lets each be cancelled at once", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    const leaving = new AbortController();
    const waiting = [come(tested, leaving.signal), come(tested), come(tested), come(tested)];
    const beyond = come(tested);
    await turns();
    assert.equal(beyond.state, "queue_full");
    leaving.abort();
    await turns();
    assert.equal(waiting[0]?.state, "cancelled");
    await rig.clock.advance(60_000);
    assert.deepEqual(
      waiting.slice(1).map(({ state }) => state),
      ["model_loading", "model_loading", "model_loading"],
    );
    await tested.places[0]?.up();
    assert.equal(tested.managed.status, "loaded");
    assert.equal(rig.clock.pendingCount, 0);
  });

  it("refuses waiting and, for a while, new requests with the failure of its load; a reload tries again at once", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    const request = come(tested);
    await turns();
    await tested.places[0]?.fail();
    assert.equal(request.state, "model_failed");
    assert.match(request.error?.message ?? "", /the file is damaged/);
    assert.deepEqual(tested.moves, ["reloading (request)", "unloaded (failed)"]);
    await rig.clock.advance(policy.maxBackoffMs - 4500);
    const later = come(tested);
    await turns();
    assert.deepEqual([later.state, later.error?.retryAfterSeconds], ["model_failed", 5]);
    assert.equal(tested.managed.outcome.error?.code, "model_failed");
    const reloaded = watch(tested.managed.reload());
    await turns();
    const duringReload = come(tested);
    await turns();
    assert.equal(duringReload.state, "waits");
    await tested.places[1]?.fail();
    assert.deepEqual([reloaded.value?.status, reloaded.value?.error?.code], ["unloaded", "model_failed"]);
    await rig.clock.advance(policy.maxBackoffMs);
    const last = come(tested);
    await turns();
    await tested.places[2]?.up();
    assert.equal(last.state, "in");
    assert.equal(tested.managed.outcome.error, null);
  });

  it("is loaded again after a retryable failure, while requests wait", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    const request = come(tested);
    await turns();
    await tested.places[0]?.fail(new ServerError("peer_gone", "it died while it started"));
    await rig.clock.advance(0);
    assert.deepEqual([request.state, tested.places.length], ["waits", 2]);
    await tested.places[1]?.up();
    assert.equal(request.state, "in");
    assert.deepEqual(tested.moves, ["reloading (request)", "loaded (ready)"]);
  });
});

describe("a model whose engine dies", () => {
  it("is restarted, and meanwhile refuses requests with model_loading", async () => {
    const rig = createRig();
    const tested = await rig.loaded("a");
    await tested.places[0]?.crash();
    const refused = come(tested);
    await turns();
    assert.equal(refused.state, "model_loading");
    assert.deepEqual(await tested.managed.reload(), { id: "a", status: "reloading", error: null });
    await rig.clock.advance(0);
    await tested.places[1]?.up();
    const request = come(tested);
    await turns();
    assert.equal(request.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["reloading (crash)", "loaded (ready)"]);
  });

  it("keeps the facts from its file if these cannot be read again", async () => {
    const facts = { architecture: "llama", weightType: null, headDigest: "d", chats: true, reasons: false };
    const answers = [facts, null];
    const users = { attach: async () => answers.shift() ?? null, detach: () => {} };
    const rig = createRig();
    const tested = await rig.loaded("a", { users });
    await tested.places[0]?.crash();
    await rig.clock.advance(0);
    await tested.places[1]?.up();
    assert.deepEqual([answers.length, tested.managed.model.capabilities?.file], [0, facts]);
  });

  it("stays loaded during a task, and refuses tasks while it is being unloaded", async () => {
    const tested = await createRig().loaded("a");
    const task = tested.managed.whileLoaded(async (model) => await model.ask("statistics", null));
    assert.equal(tested.managed.gate.inFlight, 1);
    await task;
    assert.equal(tested.managed.gate.inFlight, 0);
    void tested.managed.unload();
    await assert.rejects(
      tested.managed.whileLoaded(async () => {}),
      { code: "model_state_conflict" },
    );
  });
});

describe("an idle model", () => {
  it("is unloaded after the idle time", async () => {
    const rig = createRig();
    const tested = await rig.loaded("a", { idleUnloadMs: 1000 });
    await rig.clock.advance(900);
    const request = come(tested);
    await turns();
    await rig.clock.advance(5000);
    assert.equal(tested.managed.status, "loaded");
    request.leave();
    await rig.clock.advance(999);
    assert.equal(tested.managed.status, "loaded");
    await rig.clock.advance(1);
    await turns();
    assert.equal(tested.managed.status, "unloaded");
    assert.equal(tested.moves.at(-1), "unloaded (idle)");
    assert.equal(rig.clock.pendingCount, 0);
  });
});
