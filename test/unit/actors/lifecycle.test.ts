import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, describe, it } from "node:test";
import { transitionRows } from "../../../actors/model-lifecycle/transitions.ts";
import { ownRunAdapter } from "../../../actors/served-model.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { code, markdownTable } from "../../../runtime/markdown-table.ts";
import { Lives, policy, type TestedLife, turns } from "./lifecycle-rig.ts";

let lives = new Lives();

afterEach(async () => {
  await lives.close();
});

function createLives(seats: number | null = null): Lives {
  lives = new Lives(seats);
  return lives;
}

/** A request that has come: in, waiting, or refused with a code. */
function come({ life }: TestedLife, signal: AbortSignal | null = null) {
  const request = { state: "waits", error: null as ServerError | null, leave: () => life.leave() };
  life.enter(signal).then(
    () => {
      request.state = "in";
    },
    (error: ServerError) => {
      request.state = error.code;
      request.error = error;
    },
  );
  return request;
}

/** Whether a promise has settled, and with what. */
function watch<T>(promise: Promise<T>) {
  const watched = { isSettled: false, value: null as T | null };
  promise.then((value) => {
    watched.isSettled = true;
    watched.value = value;
  });
  return watched;
}

describe("the table of transitions", () => {
  it("is the one in docs/models.md", () => {
    const text = readFileSync(new URL("../../../../docs/models.md", import.meta.url), "utf8");
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
    assert.equal((await tested.life.enter(null).catch((error) => error)).code, "model_loading");
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

describe("unloading a model", () => {
  it("lets requests in flight end, and has those that come wait and the model loaded for them", async () => {
    const tested = await createLives().loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.life.unload());
    const late = come(tested);
    await turns();
    assert.deepEqual([running.state, late.state, tested.life.status], ["in", "waits", "loaded"]);
    assert.equal(tested.places[0]?.isGone, false);
    running.leave();
    await turns();
    assert.deepEqual(unloaded.value, { id: "a", status: "unloaded", error: null });
    assert.deepEqual([tested.places[0]?.isGone, tested.life.status], [true, "reloading"]);
    await tested.places[1]?.up();
    assert.equal(late.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)", "reloading (request)", "loaded (ready)"]);
    assert.equal(new Uint8Array(tested.life.served.spec.abortFlag as SharedArrayBuffer)[0], 0);
  });

  it("says so in the log, with why and how long it took", async () => {
    const tested = await createLives().loaded("a");
    await tested.life.unload();
    const { fields } = tested.logged.find(({ message }) => message === "model unloaded") ?? {};
    assert.deepEqual(
      [fields?.model, fields?.reason, typeof fields?.drainMs, typeof fields?.stopMs],
      ["a", "unload", "number", "number"],
    );
  });

  it("twice is unloading it once, at the same time or later", async () => {
    const tested = await createLives().loaded("a");
    const outcomes = await Promise.all([tested.life.unload(), tested.life.unload()]);
    outcomes.push(await tested.life.unload());
    assert.deepEqual(new Set(outcomes.map(({ status }) => status)), new Set(["unloaded"]));
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)"]);
  });

  it("waits for a load under way, so that nobody who waits for that is lost", async () => {
    const tested = createLives().create("a");
    const request = come(tested);
    const unloaded = watch(tested.life.unload());
    await turns();
    assert.equal(unloaded.isSettled, false);
    await tested.places[0]?.up();
    assert.equal(request.state, "in");
    request.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(tested.life.status, "unloaded");
  });

  it("is done where the load under way fails", async () => {
    const tested = createLives().create("a");
    const reloaded = watch(tested.life.reload());
    const unloaded = watch(tested.life.unload());
    await turns();
    await tested.places[0]?.fail();
    assert.deepEqual(unloaded.value, { id: "a", status: "unloaded", error: null });
    assert.equal(reloaded.value?.error?.code, "model_failed");
  });

  it("gives up a restart after a crash", async () => {
    const lives = createLives();
    const tested = await lives.loaded("a");
    await tested.places[0]?.crash();
    await lives.clock.advance(0);
    await tested.places[1]?.fail(new ServerError("peer_gone", "again"));
    assert.equal(tested.life.status, "reloading");
    assert.deepEqual(await tested.life.unload(), { id: "a", status: "unloaded", error: null });
    await lives.clock.advance(60_000);
    assert.equal(tested.places.length, 2);
    assert.deepEqual(tested.moves.slice(2), ["reloading (crash)", "unloaded (unload)"]);
    assert.equal(lives.clock.pendingCount, 0);
  });

  it("ends where the engine dies on the way, though its requests have not been told yet", async () => {
    const lives = createLives();
    const tested = await lives.loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.life.unload());
    const late = come(tested);
    await turns();
    await tested.places[0]?.crash();
    assert.equal(unloaded.value?.status, "unloaded");
    await turns();
    await tested.places[1]?.up();
    assert.equal(late.state, "in");
    running.leave();
    late.leave();
    assert.equal(tested.life.inFlight, 0);
    assert.equal(tested.places.length, 2);
  });
});

describe("reloading a model", () => {
  it("empties it, stops it and loads it anew; whoever asks meanwhile is told that it is at it", async () => {
    const tested = await createLives().loaded("a");
    const running = come(tested);
    await turns();
    const reloaded = watch(tested.life.reload());
    const late = come(tested);
    await turns();
    assert.deepEqual(await tested.life.reload(), { id: "a", status: "reloading", error: null });
    assert.equal(tested.life.status, "loaded");
    running.leave();
    await turns();
    assert.deepEqual(await tested.life.reload(), { id: "a", status: "reloading", error: null });
    assert.equal(reloaded.isSettled, false);
    await tested.places[1]?.up();
    assert.deepEqual(reloaded.value, { id: "a", status: "loaded", error: null });
    assert.equal(late.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (reload)", "reloading (reload)", "loaded (ready)"]);
  });

  it("brings back one that was given up", async () => {
    const lives = createLives();
    const tested = await lives.loaded("a");
    for (let life = 0; life < 3; life++) {
      await tested.places[life]?.crash();
      await lives.clock.advance(1000);
      await tested.places[life + 1]?.up();
    }
    assert.equal(tested.life.status, "unloaded");
    assert.equal(tested.moves.at(-1), "unloaded (failed)");
    const refused = come(tested);
    await turns();
    assert.equal(refused.state, "model_failed");
    const reloaded = watch(tested.life.reload());
    await turns();
    await tested.places[3]?.up();
    assert.equal(reloaded.value?.status, "loaded");
  });

  it("follows an unload that has not ended", async () => {
    const tested = await createLives().loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.life.unload());
    const reloaded = watch(tested.life.reload());
    running.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    await tested.places[1]?.up();
    assert.equal(reloaded.value?.status, "loaded");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)", "reloading (reload)", "loaded (ready)"]);
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

describe("models that do not all fit", () => {
  it("makes the least recently used one without requests leave", async () => {
    const lives = createLives(2);
    const a = await lives.loaded("a");
    await lives.clock.advance(10);
    const b = await lives.loaded("b");
    await lives.clock.advance(10);
    const running = come(a);
    await turns();
    const c = lives.create("c");
    const request = come(c);
    await turns();
    assert.deepEqual([a.life.status, b.life.status, c.life.status], ["loaded", "unloaded", "reloading"]);
    await c.places[0]?.up();
    assert.equal(request.state, "in");
    assert.equal(b.moves.at(-1), "unloaded (evict)");
    assert.equal(running.state, "in");
    assert.equal(lives.mostAlive, 2);
  });

  it("empties the least recently used one where all are busy; its later requests have their turn", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a");
    const running = come(a);
    const b = lives.create("b");
    const wants = come(b);
    await turns();
    const late = come(a);
    await turns();
    assert.deepEqual(
      [wants.state, late.state, a.life.status, b.life.status],
      ["waits", "waits", "loaded", "reloading"],
    );
    running.leave();
    await turns();
    await b.places[0]?.up();
    assert.deepEqual([wants.state, late.state, a.life.status], ["in", "waits", "reloading"]);
    wants.leave();
    await turns();
    await a.places[1]?.up();
    assert.deepEqual([late.state, b.life.status], ["in", "unloaded"]);
    assert.equal(lives.mostAlive, 1);
  });

  it("asks one after the other to leave, in the order others came", async () => {
    const lives = createLives(2);
    const [a, b] = [await lives.loaded("a"), await lives.loaded("b")];
    const [onA, onB] = [come(a), come(b)];
    await turns();
    const [c, d] = [lives.create("c"), lives.create("d")];
    const [wantsC, wantsD] = [come(c), come(d)];
    await turns();
    assert.deepEqual([a.life.isLeaving, b.life.isLeaving], [true, false]);
    onA.leave();
    await turns();
    assert.deepEqual([b.life.isLeaving, c.places.length, d.places.length], [true, 1, 0]);
    onB.leave();
    await turns();
    await c.places[0]?.up();
    await d.places[0]?.up();
    assert.deepEqual([wantsC.state, wantsD.state], ["in", "in"]);
  });

  it("drops the turn of one that nobody waits for any more", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a");
    const running = come(a);
    await turns();
    const b = lives.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    const unloaded = watch(b.life.unload());
    leaving.abort();
    await turns();
    assert.deepEqual(b.moves, ["reloading (request)", "unloaded (unwanted)"]);
    assert.equal(unloaded.value?.status, "unloaded");
    running.leave();
    await turns();
    assert.equal(b.places.length, 0);
  });

  it("lets one take the seat of another that cannot be loaded", async () => {
    const lives = createLives(1);
    const [a, b] = [lives.create("a"), lives.create("b")];
    const [first, second] = [come(a), come(b)];
    await turns();
    assert.deepEqual([a.places.length, b.places.length], [1, 0]);
    await a.places[0]?.fail();
    await b.places[0]?.up();
    assert.deepEqual([first.state, second.state], ["model_failed", "in"]);
  });

  it("evicts one that is being started again", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a");
    await a.places[0]?.crash();
    const b = lives.create("b");
    const request = come(b);
    await turns();
    await b.places[0]?.up();
    assert.equal(request.state, "in");
    assert.deepEqual(a.moves.slice(2), ["reloading (crash)", "unloaded (evict)"]);
  });
});

describe("stopping", () => {
  const moments: Record<string, (lives: Lives) => Promise<TestedLife>> = {
    "not loaded": async (lives) => lives.create("a"),
    "being loaded": async (lives) => {
      const tested = lives.create("a");
      void tested.life.reload();
      await turns();
      return tested;
    },
    loaded: (lives) => lives.loaded("a"),
    "being emptied": async (lives) => {
      const tested = await lives.loaded("a");
      come(tested);
      await turns();
      void tested.life.unload();
      return tested;
    },
    "waiting to be started again": async (lives) => {
      const tested = await lives.loaded("a");
      await tested.places[0]?.crash();
      await lives.clock.advance(0);
      await tested.places[1]?.fail(new ServerError("peer_gone", "again"));
      return tested;
    },
    "waiting for room": async (lives) => {
      const other = await lives.loaded("other");
      come(other);
      await turns();
      const tested = lives.create("a");
      void tested.life.reload();
      await turns();
      return tested;
    },
  };

  for (const [moment, reach] of Object.entries(moments)) {
    it(`ends a model that is ${moment}, and whoever waits for it`, async () => {
      const lives = createLives(1);
      const tested = await reach(lives);
      const [unloaded, reloaded, request] = [watch(tested.life.unload()), watch(tested.life.reload()), come(tested)];
      await Promise.all(lives.all.map(({ life }) => life.stop(1000)));
      await turns();
      assert.equal(tested.life.status, "unloaded");
      assert.ok(unloaded.value !== null && reloaded.value !== null);
      assert.ok(["draining", "model_loading", "in"].includes(request.state), request.state);
      assert.equal(lives.alive, 0);
      assert.equal(lives.clock.pendingCount, 0);
      const after = come(tested);
      await turns();
      assert.equal(after.state, "draining");
    });
  }
});
