import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { come, ModelRig, turns, watch } from "./lifecycle-rig.ts";

let rig = new ModelRig();

afterEach(async () => {
  await rig.close();
});

function createRig(slots: number | null = null): ModelRig {
  rig = new ModelRig(slots);
  return rig;
}

describe("models that share slots", () => {
  it("evicts the least recently used model without requests", async () => {
    const rig = createRig(2);
    const a = await rig.loaded("a");
    await rig.clock.advance(10);
    const b = await rig.loaded("b");
    await rig.clock.advance(10);
    const running = come(a);
    await turns();
    const c = rig.create("c");
    const request = come(c);
    await turns();
    assert.deepEqual([a.managed.status, b.managed.status, c.managed.status], ["loaded", "unloaded", "reloading"]);
    await c.places[0]?.up();
    assert.equal(request.state, "in");
    assert.equal(b.moves.at(-1), "unloaded (evict)");
    assert.equal(running.state, "in");
    assert.equal(rig.mostAlive, 2);
  });

  it("drains the least recently used model if all are busy; its later requests are answered in turn", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const running = come(a);
    const b = rig.create("b");
    const wants = come(b);
    await turns();
    const late = come(a);
    await turns();
    assert.deepEqual(
      [wants.state, late.state, a.managed.status, b.managed.status],
      ["waits", "waits", "loaded", "reloading"],
    );
    running.leave();
    await turns();
    await b.places[0]?.up();
    assert.deepEqual([wants.state, late.state, a.managed.status], ["in", "waits", "reloading"]);
    wants.leave();
    await turns();
    await a.places[1]?.up();
    assert.deepEqual([late.state, b.managed.status], ["in", "unloaded"]);
    assert.equal(rig.mostAlive, 1);
  });

  it("evicts models one after the other, in the order of the queue", async () => {
    const rig = createRig(2);
    const [a, b] = [await rig.loaded("a"), await rig.loaded("b")];
    const [onA, onB] = [come(a), come(b)];
    await turns();
    const [c, d] = [rig.create("c"), rig.create("d")];
    const [wantsC, wantsD] = [come(c), come(d)];
    await turns();
    assert.deepEqual([a.managed.isLeaving, b.managed.isLeaving], [true, false]);
    onA.leave();
    await turns();
    assert.deepEqual([b.managed.isLeaving, c.places.length, d.places.length], [true, 1, 0]);
    onB.leave();
    await turns();
    await c.places[0]?.up();
    await d.places[0]?.up();
    assert.deepEqual([wantsC.state, wantsD.state], ["in", "in"]);
  });

  it("removes a model from the queue when its last request is cancelled", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const running = come(a);
    await turns();
    const b = rig.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    const unloaded = watch(b.managed.unload());
    leaving.abort();
    await turns();
    assert.deepEqual(b.moves, ["reloading (request)", "unloaded (unload)"]);
    assert.equal(unloaded.value?.status, "unloaded");
    running.leave();
    await turns();
    assert.equal(b.places.length, 0);
  });

  it("withdraws an eviction when no model waits any more", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a", { idleUnloadMs: 1000 });
    const running = come(a);
    const b = rig.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    const late = come(a);
    await turns();
    assert.equal(late.state, "waits");
    leaving.abort();
    await turns();
    assert.deepEqual([late.state, a.managed.isLeaving, a.managed.gate.inFlight], ["in", false, 2]);
    running.leave();
    late.leave();
    await turns();
    assert.deepEqual(a.moves.slice(2), []);
    await rig.clock.advance(1000);
    await turns();
    assert.deepEqual(a.moves.slice(2), ["unloaded (idle)"]);
  });

  it("withdraws an eviction when the waiting model gets another slot, and can evict again later", async () => {
    const rig = createRig(2);
    const [a, b] = [await rig.loaded("a"), await rig.loaded("b")];
    const [onA, onB] = [come(a), come(b)];
    const c = rig.create("c");
    const onC = come(c);
    await turns();
    assert.equal(a.managed.isLeaving, true);
    await b.places[0]?.crash();
    const unloaded = watch(b.managed.unload());
    await turns();
    await c.places[0]?.up();
    assert.deepEqual([unloaded.isSettled, onC.state, a.managed.isLeaving], [true, "in", false]);
    onB.leave();
    const again = come(b);
    await turns();
    assert.equal(a.managed.isLeaving, true);
    onA.leave();
    await turns();
    await b.places[1]?.up();
    assert.deepEqual([again.state, a.moves.at(-1)], ["in", "unloaded (evict)"]);
  });

  it("unloads an evicted model whose eviction is withdrawn, if an unload was called too", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const running = come(a);
    const leaving = new AbortController();
    come(rig.create("b"), leaving.signal);
    await turns();
    const unloaded = watch(a.managed.unload());
    leaving.abort();
    const late = come(a);
    await turns();
    assert.deepEqual([late.state, unloaded.isSettled], ["waits", false]);
    running.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(a.moves[2], "unloaded (unload)");
  });

  it("keeps a model in the queue for a reload, though its request is cancelled", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const running = come(a);
    const b = rig.create("b");
    const leaving = new AbortController();
    come(b, leaving.signal);
    await turns();
    assert.deepEqual(await b.managed.reload(), { id: "b", status: "reloading", error: null });
    leaving.abort();
    await turns();
    running.leave();
    await turns();
    await b.places[0]?.up();
    assert.equal(b.managed.status, "loaded");
  });

  it("leaves the slots to local models while the servers of a remote one are down", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const served = { ...a.managed.served, id: "far", engine: "remote" } as const;
    const far = rig.create("far", { served });
    const onFar = come(far);
    await turns();
    assert.deepEqual([a.managed.status, far.places.length], ["loaded", 1]);
    const b = rig.create("b");
    const onB = come(b);
    await turns();
    await b.places[0]?.up();
    assert.deepEqual([onFar.state, onB.state, a.moves.at(-1)], ["waits", "in", "unloaded (evict)"]);
    await far.places[0]?.up();
    assert.deepEqual([onFar.state, b.managed.status], ["in", "loaded"]);
    onFar.leave();
    await far.managed.unload();
    assert.equal(b.managed.status, "loaded");
  });

  it("gives the slot of a model that cannot be loaded to the next", async () => {
    const rig = createRig(1);
    const [a, b] = [rig.create("a"), rig.create("b")];
    const [first, second] = [come(a), come(b)];
    await turns();
    assert.deepEqual([a.places.length, b.places.length], [1, 0]);
    await a.places[0]?.fail();
    await b.places[0]?.up();
    assert.deepEqual([first.state, second.state], ["model_failed", "in"]);
  });

  it("evicts a model that is being restarted", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    await a.places[0]?.crash();
    const b = rig.create("b");
    const request = come(b);
    await turns();
    await b.places[0]?.up();
    assert.equal(request.state, "in");
    assert.deepEqual(a.moves.slice(2), ["reloading (crash)", "unloaded (evict)"]);
  });

  it("finishes an eviction that is withdrawn while the process stops, then carries out a reload", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    await a.places[0]?.crash();
    const leaving = new AbortController();
    come(rig.create("b"), leaving.signal);
    leaving.abort();
    const reloaded = watch(a.managed.reload());
    await turns();
    await a.places[1]?.up();
    assert.equal(a.managed.status, "loaded");
    assert.equal(reloaded.isSettled, true);
    const moves = ["reloading (crash)", "unloaded (evict)", "reloading (reload)", "loaded (ready)"];
    assert.deepEqual(a.moves.slice(2), moves);
  });
});

describe("a model that is removed", () => {
  it("ends its running requests first, rejects new ones, and frees its slot", async () => {
    const rig = createRig(1);
    const a = await rig.loaded("a");
    const running = come(a);
    await turns();
    const gone = { code: "model_not_found", message: "it is removed" } as const;
    const retired = watch(a.managed.retire(gone));
    await turns();
    const late = come(a);
    await turns();
    assert.deepEqual([running.state, late.state, retired.isSettled], ["in", "model_not_found", false]);
    running.leave();
    await turns();
    assert.equal(retired.isSettled, true);
    await a.managed.stop(1000);
    const b = rig.create("b");
    const wants = come(b);
    await turns();
    await b.places[0]?.up();
    assert.equal(wants.state, "in");
  });

  it("does not keep a slot if it is removed while requests wait for it to be loaded", async () => {
    const rig = createRig(1);
    const a = rig.create("a");
    const waiting = come(a);
    await turns();
    const retired = a.managed.retire({ code: "model_not_found", message: "it is removed" });
    await turns();
    await a.places[0]?.up();
    await turns();
    await retired;
    await a.managed.stop(1000);
    assert.equal(waiting.state, "model_not_found");
    const b = await rig.loaded("b");
    assert.equal(b.managed.status, "loaded");
  });
});
