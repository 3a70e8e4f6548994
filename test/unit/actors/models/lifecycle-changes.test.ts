import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { DesiredState } from "../../../../actors/models/desired-state.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { come, Lives, turns, watch } from "./lifecycle-rig.ts";

let lives = new Lives();

afterEach(async () => {
  await lives.close();
});

function createLives(seats: number | null = null): Lives {
  lives = new Lives(seats);
  return lives;
}

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
    const request = come(tested);
    const unloaded = watch(tested.life.unload());
    await turns();
    await tested.places[0]?.fail();
    assert.deepEqual(unloaded.value, { id: "a", status: "unloaded", error: null });
    assert.equal(request.state, "model_failed");
  });

  it("ends a load that nobody waits for, and the reload that began it", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const reloaded = watch(tested.life.reload());
    await turns();
    assert.deepEqual(await tested.life.unload(), { id: "a", status: "unloaded", error: null });
    assert.deepEqual(reloaded.value, { id: "a", status: "unloaded", error: null });
    assert.deepEqual(tested.moves, ["reloading (reload)", "unloaded (unload)"]);
    assert.deepEqual([lives.alive, lives.clock.pendingCount], [0, 0]);
    const request = come(tested);
    await turns();
    await tested.places[1]?.up();
    assert.equal(request.state, "in");
  });

  it("ends a load once the last request that waits for it has left", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    const leaving = new AbortController();
    come(tested, leaving.signal);
    const unloaded = watch(tested.life.unload());
    await turns();
    assert.equal(unloaded.isSettled, false);
    leaving.abort();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(lives.alive, 0);
  });

  it("ends a load that goes on being tried, and leaves alone the one that a reload begins right after", async () => {
    const lives = createLives();
    const tested = lives.create("a");
    come(tested, AbortSignal.timeout(60_000));
    await turns();
    await tested.places[0]?.fail(new ServerError("peer_gone", "it died while it started"));
    await lives.clock.advance(60_000);
    const calls = [tested.life.unload(), tested.life.unload(), tested.life.reload()].map(watch);
    await turns();
    assert.deepEqual(
      calls.map(({ value }) => value?.status),
      ["unloaded", "unloaded", "reloading"],
    );
    await tested.places.at(-1)?.up();
    assert.equal(tested.life.status, "loaded");
  });

  it("keeps one answer for however many ask", async () => {
    const wishes = new DesiredState();
    assert.equal(wishes.call("unload"), wishes.call("unload"));
    assert.equal(wishes.call("reload"), wishes.call("reload"));
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

  it("is overtaken by an unload that comes after it", async () => {
    const tested = await createLives().loaded("a");
    const running = come(tested);
    const reloaded = watch(tested.life.reload());
    const unloaded = watch(tested.life.unload());
    running.leave();
    await turns();
    assert.deepEqual([reloaded.value, unloaded.value], Array(2).fill({ id: "a", status: "unloaded", error: null }));
    assert.deepEqual([tested.places.length, tested.moves.at(-1)], [1, "unloaded (unload)"]);
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
