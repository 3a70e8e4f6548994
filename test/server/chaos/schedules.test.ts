// Fault schedules: short version of `bench chaos`. A few schedules of faults run against real servers, one with its state in
// LMDB, and replicas with Redis.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ChaosRig, type RigKind } from "../../../bench/chaos/rig/rig.ts";
import { Stage } from "../../../bench/chaos/schedule.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";

/** Time in ms after which no more schedules are started. */
const enoughMs = 10_000;

async function runs(kind: RigKind, seeds: readonly number[]): Promise<void> {
  const rig = await ChaosRig.start(kind, { replicas: 2 });
  try {
    const stage = await Stage.prepare(rig);
    const began = performance.now();
    for (const seed of seeds) {
      const { faults, violations } = await stage.run(seed);
      const replay = `npm run bench -- chaos --rig ${kind} --seed ${seed} --schedules 1`;
      assert.deepEqual(violations, [], `${faults.join("; ")}\nreplay: ${replay}`);
      if (performance.now() - began > enoughMs) break;
    }
  } finally {
    await rig.stop();
  }
}

describe("no guarantee is broken by faults", { timeout: 300_000 }, () => {
  it("of a server and its disk", () => runs("lmdb", [3, 110, 1]));
  it("of replicas and Redis", { skip: lacksRedis }, () => runs("redis", [4, 1]));
});
