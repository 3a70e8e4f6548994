// Three servers behind nginx: one is killed, one is stopped, and Redis is restarted. `bench replicas` is the longer version.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { realModel } from "../../fixtures/models/models.ts";
import { lacksProxy } from "../../fixtures/proxy/proxy.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { runProxied } from "./proxied.ts";

const STREAMS = 8;

describe("three servers behind nginx", { skip: lacksRedis || lacksProxy("nginx"), timeout: 180_000 }, () => {
  it("cut only the streams of the killed server, and lose no stored response", async () => {
    const { path: model } = await realModel();
    const result = await runProxied({ proxy: "nginx", model, streams: STREAMS, tokens: 64, redis: "after" });
    const { killed, drained, kept } = result.counts;
    const responses = STREAMS - Math.floor(STREAMS / 4);
    for (const counts of [drained, kept]) {
      assert.deepEqual([counts.whole, counts.cut, counts.readable], [STREAMS, 0, responses]);
    }
    // The clients of the killed server see that their connections close in the middle of the body.
    assert.deepEqual([killed.whole, killed.cut], [0, STREAMS]);
    assert.deepEqual([killed.interrupted, killed.readable], [responses, responses]);
    assert.ok(
      [...result.cuts.keys()].every((what) => /terminated/.test(what)),
      [...result.cuts.keys()].join("; "),
    );
    for (const { lost, doubled } of Object.values(result.counts)) assert.deepEqual([lost, doubled], [0, 0]);
    assert.deepEqual(result.failedProbes, []);
    assert.ok(result.probes > 4);
    assert.equal(result.drainCode, 0);
  });
});
