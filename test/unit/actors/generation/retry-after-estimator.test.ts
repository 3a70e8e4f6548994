import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { RetryAfterEstimator } from "../../../../actors/generation/retry-after-estimator.ts";
import { FakeClock } from "../../../fixtures/fakes/fake-clock.ts";

describe("the estimate of Retry-After", () => {
  it("estimates how long a queue takes at the recent rate, in whole seconds", async () => {
    const clock = new FakeClock();
    const pace = new RetryAfterEstimator(clock);
    assert.equal(pace.secondsFor(64), 1, "nothing is known yet");
    for (let i = 0; i < 200; i++) {
      await clock.advance(i < 100 ? 5 : 250);
      pace.ended();
    }
    assert.equal(pace.secondsFor(64), 16);
    assert.equal(pace.secondsFor(1), 1);
    assert.equal(pace.secondsFor(10_000), 60);
  });

  it("includes the time since the last freed slot", async () => {
    const clock = new FakeClock();
    const pace = new RetryAfterEstimator(clock);
    for (let i = 0; i < 3; i++) pace.ended();
    await clock.advance(10_000);
    assert.equal(pace.secondsFor(4), 20);
  });
});
