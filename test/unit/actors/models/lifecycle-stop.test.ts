import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { ServerError } from "../../../../runtime/errors.ts";
import { come, Lives, type TestedLife, turns, watch } from "./lifecycle-rig.ts";

let lives = new Lives();

afterEach(async () => {
  await lives.close();
});

function createLives(seats: number | null = null): Lives {
  lives = new Lives(seats);
  return lives;
}

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
