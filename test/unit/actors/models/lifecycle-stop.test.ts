import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { ServerError } from "../../../../runtime/errors.ts";
import { come, ModelRig, type TestedModel, turns, watch } from "./lifecycle-rig.ts";

let rig = new ModelRig();

afterEach(async () => {
  await rig.close();
});

function createRig(slots: number | null = null): ModelRig {
  rig = new ModelRig(slots);
  return rig;
}

describe("stopping", () => {
  const moments: Record<string, (rig: ModelRig) => Promise<TestedModel>> = {
    "not loaded": async (rig) => rig.create("a"),
    "being loaded": async (rig) => {
      const tested = rig.create("a");
      void tested.managed.reload();
      await turns();
      return tested;
    },
    loaded: (rig) => rig.loaded("a"),
    draining: async (rig) => {
      const tested = await rig.loaded("a");
      come(tested);
      await turns();
      void tested.managed.unload();
      return tested;
    },
    "waiting to be restarted": async (rig) => {
      const tested = await rig.loaded("a");
      await tested.places[0]?.crash();
      await rig.clock.advance(0);
      await tested.places[1]?.fail(new ServerError("peer_gone", "again"));
      return tested;
    },
    "waiting for a slot": async (rig) => {
      const other = await rig.loaded("other");
      come(other);
      await turns();
      const tested = rig.create("a");
      void tested.managed.reload();
      await turns();
      return tested;
    },
  };

  for (const [moment, reach] of Object.entries(moments)) {
    it(`ends a model that is ${moment}, and answers its calls and requests`, async () => {
      const rig = createRig(1);
      const tested = await reach(rig);
      const [unloaded, reloaded, request] = [
        watch(tested.managed.unload()),
        watch(tested.managed.reload()),
        come(tested),
      ];
      await Promise.all(rig.all.map(({ managed }) => managed.stop(1000)));
      await turns();
      assert.equal(tested.managed.status, "unloaded");
      assert.ok(unloaded.value !== null && reloaded.value !== null);
      assert.ok(["draining", "model_loading", "in"].includes(request.state), request.state);
      assert.equal(rig.alive, 0);
      assert.equal(rig.clock.pendingCount, 0);
      const after = come(tested);
      await turns();
      assert.equal(after.state, "draining");
    });
  }
});
