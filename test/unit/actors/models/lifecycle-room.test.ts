import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { come, Lives, turns, watch } from "./lifecycle-rig.ts";

let lives = new Lives();

afterEach(async () => {
  await lives.close();
});

function createLives(seats: number | null = null): Lives {
  lives = new Lives(seats);
  return lives;
}

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
    assert.deepEqual(b.moves, ["reloading (request)", "unloaded (unload)"]);
    assert.equal(unloaded.value?.status, "unloaded");
    running.leave();
    await turns();
    assert.equal(b.places.length, 0);
  });

  it("keeps one that is being emptied where nobody waits for the other any more", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a", { idleUnloadMs: 1000 });
    const running = come(a);
    const b = lives.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    const late = come(a);
    await turns();
    assert.equal(late.state, "waits");
    leaving.abort();
    await turns();
    assert.deepEqual([late.state, a.life.isLeaving, a.life.inFlight], ["in", false, 2]);
    running.leave();
    late.leave();
    await turns();
    assert.deepEqual(a.moves.slice(2), []);
    await lives.clock.advance(1000);
    await turns();
    assert.deepEqual(a.moves.slice(2), ["unloaded (idle)"]);
  });

  it("keeps it too where the other has got the room of a third, and lets it be asked again", async () => {
    const lives = createLives(2);
    const [a, b] = [await lives.loaded("a"), await lives.loaded("b")];
    const [onA, onB] = [come(a), come(b)];
    const c = lives.create("c");
    const onC = come(c);
    await turns();
    assert.equal(a.life.isLeaving, true);
    await b.places[0]?.crash();
    const unloaded = watch(b.life.unload());
    await turns();
    await c.places[0]?.up();
    assert.deepEqual([unloaded.isSettled, onC.state, a.life.isLeaving], [true, "in", false]);
    onB.leave();
    const again = come(b);
    await turns();
    assert.equal(a.life.isLeaving, true);
    onA.leave();
    await turns();
    await b.places[1]?.up();
    assert.deepEqual([again.state, a.moves.at(-1)], ["in", "unloaded (evict)"]);
  });

  it("unloads it all the same where that was wished for besides", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a");
    const running = come(a);
    const leaving = new AbortController();
    come(lives.create("b"), leaving.signal);
    await turns();
    const unloaded = watch(a.life.unload());
    leaving.abort();
    const late = come(a);
    await turns();
    assert.deepEqual([late.state, unloaded.isSettled], ["waits", false]);
    running.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(a.moves[2], "unloaded (unload)");
  });

  it("keeps the turn of one that a reload was answered for, though the request leaves", async () => {
    const lives = createLives(1);
    const a = await lives.loaded("a");
    const running = come(a);
    const b = lives.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    assert.deepEqual(await b.life.reload(), { id: "b", status: "reloading", error: null });
    leaving.abort();
    await turns();
    running.leave();
    await turns();
    await b.places[0]?.up();
    assert.equal(b.life.status, "loaded");
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
