import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { DesiredState } from "../../../../actors/models/desired-state.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { come, ModelRig, turns, watch } from "./lifecycle-rig.ts";

let rig = new ModelRig();

afterEach(async () => {
  await rig.close();
});

function createRig(slots: number | null = null): ModelRig {
  rig = new ModelRig(slots);
  return rig;
}

describe("unloading a model", () => {
  it("lets requests in flight end; new requests wait, and the model is loaded again for them", async () => {
    const tested = await createRig().loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.managed.unload());
    const late = come(tested);
    await turns();
    assert.deepEqual([running.state, late.state, tested.managed.status], ["in", "waits", "loaded"]);
    assert.equal(tested.places[0]?.isGone, false);
    running.leave();
    await turns();
    assert.deepEqual(unloaded.value, { id: "a", status: "unloaded", error: null });
    assert.deepEqual([tested.places[0]?.isGone, tested.managed.status], [true, "reloading"]);
    await tested.places[1]?.up();
    assert.equal(late.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)", "reloading (request)", "loaded (ready)"]);
    assert.equal(new Uint8Array(tested.managed.served.spec.abortFlag as SharedArrayBuffer)[0], 0);
  });

  it("is logged with its reason and duration", async () => {
    const tested = await createRig().loaded("a");
    await tested.managed.unload();
    const { fields } = tested.logged.find(({ message }) => message === "model unloaded") ?? {};
    assert.deepEqual(
      [fields?.model, fields?.reason, typeof fields?.drainMs, typeof fields?.stopMs],
      ["a", "unload", "number", "number"],
    );
  });

  it("has no further effect if repeated, at the same time or later", async () => {
    const tested = await createRig().loaded("a");
    const outcomes = await Promise.all([tested.managed.unload(), tested.managed.unload()]);
    outcomes.push(await tested.managed.unload());
    assert.deepEqual(new Set(outcomes.map(({ status }) => status)), new Set(["unloaded"]));
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)"]);
  });

  it("waits for a load in progress, so that waiting requests are answered", async () => {
    const tested = createRig().create("a");
    const request = come(tested);
    const unloaded = watch(tested.managed.unload());
    await turns();
    assert.equal(unloaded.isSettled, false);
    await tested.places[0]?.up();
    assert.equal(request.state, "in");
    request.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(tested.managed.status, "unloaded");
  });

  it("succeeds if the load in progress fails", async () => {
    const tested = createRig().create("a");
    const request = come(tested);
    const unloaded = watch(tested.managed.unload());
    await turns();
    await tested.places[0]?.fail();
    assert.deepEqual(unloaded.value, { id: "a", status: "unloaded", error: null });
    assert.equal(request.state, "model_failed");
  });

  it("stops a load without waiting requests, and answers the reload that began it", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    const reloaded = watch(tested.managed.reload());
    await turns();
    assert.deepEqual(await tested.managed.unload(), { id: "a", status: "unloaded", error: null });
    assert.deepEqual(reloaded.value, { id: "a", status: "unloaded", error: null });
    assert.deepEqual(tested.moves, ["reloading (reload)", "unloaded (unload)"]);
    assert.deepEqual([rig.alive, rig.clock.pendingCount], [0, 0]);
    const request = come(tested);
    await turns();
    await tested.places[1]?.up();
    assert.equal(request.state, "in");
  });

  it("stops a load when the last waiting request is cancelled", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    const leaving = new AbortController();
    come(tested, leaving.signal);
    const unloaded = watch(tested.managed.unload());
    await turns();
    assert.equal(unloaded.isSettled, false);
    leaving.abort();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    assert.equal(rig.alive, 0);
  });

  it("stops a load that is being retried, but not the load that a reload begins right after", async () => {
    const rig = createRig();
    const tested = rig.create("a");
    come(tested, AbortSignal.timeout(60_000));
    await turns();
    await tested.places[0]?.fail(new ServerError("peer_gone", "it died while it started"));
    await rig.clock.advance(60_000);
    const calls = [tested.managed.unload(), tested.managed.unload(), tested.managed.reload()].map(watch);
    await turns();
    assert.deepEqual(
      calls.map(({ value }) => value?.status),
      ["unloaded", "unloaded", "reloading"],
    );
    await tested.places.at(-1)?.up();
    assert.equal(tested.managed.status, "loaded");
  });

  it("shares one promise between equal pending calls", async () => {
    const desired = new DesiredState();
    assert.equal(desired.call("unload"), desired.call("unload"));
    assert.equal(desired.call("reload"), desired.call("reload"));
  });

  it("stops a restart after a crash", async () => {
    const rig = createRig();
    const tested = await rig.loaded("a");
    await tested.places[0]?.crash();
    await rig.clock.advance(0);
    await tested.places[1]?.fail(new ServerError("peer_gone", "again"));
    assert.equal(tested.managed.status, "reloading");
    assert.deepEqual(await tested.managed.unload(), { id: "a", status: "unloaded", error: null });
    await rig.clock.advance(60_000);
    assert.equal(tested.places.length, 2);
    assert.deepEqual(tested.moves.slice(2), ["reloading (crash)", "unloaded (unload)"]);
    assert.equal(rig.clock.pendingCount, 0);
  });

  it("completes if the engine dies meanwhile, before its requests have left", async () => {
    const rig = createRig();
    const tested = await rig.loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.managed.unload());
    const late = come(tested);
    await turns();
    await tested.places[0]?.crash();
    assert.equal(unloaded.value?.status, "unloaded");
    await turns();
    await tested.places[1]?.up();
    assert.equal(late.state, "in");
    running.leave();
    late.leave();
    assert.equal(tested.managed.gate.inFlight, 0);
    assert.equal(tested.places.length, 2);
  });
});

describe("reloading a model", () => {
  it("drains, stops and loads it again; calls meanwhile are answered with reloading", async () => {
    const tested = await createRig().loaded("a");
    const running = come(tested);
    await turns();
    const reloaded = watch(tested.managed.reload());
    const late = come(tested);
    await turns();
    assert.deepEqual(await tested.managed.reload(), { id: "a", status: "reloading", error: null });
    assert.equal(tested.managed.status, "loaded");
    running.leave();
    await turns();
    assert.deepEqual(await tested.managed.reload(), { id: "a", status: "reloading", error: null });
    assert.equal(reloaded.isSettled, false);
    await tested.places[1]?.up();
    assert.deepEqual(reloaded.value, { id: "a", status: "loaded", error: null });
    assert.equal(late.state, "in");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (reload)", "reloading (reload)", "loaded (ready)"]);
  });

  it("loads a model that was given up", async () => {
    const rig = createRig();
    const tested = await rig.loaded("a");
    for (let start = 0; start < 3; start++) {
      await tested.places[start]?.crash();
      await rig.clock.advance(1000);
      await tested.places[start + 1]?.up();
    }
    assert.equal(tested.managed.status, "unloaded");
    assert.equal(tested.moves.at(-1), "unloaded (failed)");
    const refused = come(tested);
    await turns();
    assert.equal(refused.state, "model_failed");
    const reloaded = watch(tested.managed.reload());
    await turns();
    await tested.places[3]?.up();
    assert.equal(reloaded.value?.status, "loaded");
  });

  it("is cancelled by a later unload", async () => {
    const tested = await createRig().loaded("a");
    const running = come(tested);
    const reloaded = watch(tested.managed.reload());
    const unloaded = watch(tested.managed.unload());
    running.leave();
    await turns();
    assert.deepEqual([reloaded.value, unloaded.value], Array(2).fill({ id: "a", status: "unloaded", error: null }));
    assert.deepEqual([tested.places.length, tested.moves.at(-1)], [1, "unloaded (unload)"]);
  });

  it("follows an unload in progress", async () => {
    const tested = await createRig().loaded("a");
    const running = come(tested);
    await turns();
    const unloaded = watch(tested.managed.unload());
    const reloaded = watch(tested.managed.reload());
    running.leave();
    await turns();
    assert.equal(unloaded.value?.status, "unloaded");
    await tested.places[1]?.up();
    assert.equal(reloaded.value?.status, "loaded");
    assert.deepEqual(tested.moves.slice(2), ["unloaded (unload)", "reloading (reload)", "loaded (ready)"]);
  });
});
