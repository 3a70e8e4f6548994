import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type RestartPolicy, type SuperviseOptions, supervise } from "../../../../runtime/actor/supervision.ts";
import type { PeerExit } from "../../../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import type { Place } from "../../../../runtime/thread/place.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { FakeClock, settled } from "../../../fixtures/fakes/fake-clock.ts";

const policy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 100,
  maxBackoffMs: 500,
  resetAfterMs: 10_000,
  maxRestarts: 4,
};

/** Returns a fake worker thread, and a function that ends it. */
function createPlace() {
  let end: (exit: PeerExit) => void = () => {};
  const exit = new Promise<PeerExit>((resolve) => {
    end = resolve;
  });
  const { left } = portPair();
  left.close();
  const leave = (reason: string, orderly: boolean) => end({ reason, code: null, signal: null, orderly });
  const place: Place<null> = {
    name: "den",
    ready: null,
    endpoint: left,
    exit,
    pid: null,
    dial: () => Promise.reject(new Error("not dialled here")),
    stop: async () => {
      leave("stopped", true);
      return await exit;
    },
    kill: () => leave("killed by its spawner", false),
  };
  return { place, crash: () => leave("crashed", false) };
}

function createSupervised(options: Partial<SuperviseOptions<null>> = {}) {
  const clock = new FakeClock();
  const lives: { crash: () => void; at: number }[] = [];
  const log: string[] = [];
  const supervisor = supervise<null>({
    name: "den",
    policy,
    clock,
    start: async () => {
      const { place, crash } = createPlace();
      lives.push({ crash, at: clock.now() });
      return place;
    },
    onUp: () => void log.push(`up at ${clock.now()}`),
    onDown: (exit, next) =>
      void log.push(`${exit.reason}, ${next === null ? "no retry" : `retry in ${next.retryInMs}`}`),
    onEscalate: (error) => void log.push(`escalated: ${error.message}`),
    ...options,
  });
  const crash = async () => {
    lives.at(-1)?.crash();
    await settled();
  };
  return { supervisor, clock, lives, log, crash };
}

describe("a supervisor", () => {
  it("restarts at once, then after a backoff that doubles up to its maximum, then escalates", async () => {
    const { clock, log, crash } = createSupervised();
    await settled();
    for (let i = 0; i < 5; i++) {
      await crash();
      await clock.advance(1000);
    }
    assert.deepEqual(log, [
      "up at 0",
      "crashed, retry in 0",
      "up at 0",
      "crashed, retry in 100",
      "up at 1100",
      "crashed, retry in 200",
      "up at 2200",
      "crashed, retry in 400",
      "up at 3400",
      "crashed, no retry",
      'escalated: "den" is down after 4 restarts: crashed',
    ]);
    assert.equal(clock.pendingCount, 0);
  });

  it("never waits longer than the maximum", async () => {
    const { clock, log, crash } = createSupervised({ policy: { ...policy, maxRestarts: 9 } });
    await settled();
    for (let i = 0; i < 7; i++) {
      await crash();
      await clock.advance(1000);
    }
    assert.deepEqual(log.filter((line) => line.startsWith("crashed")).slice(-2), [
      "crashed, retry in 500",
      "crashed, retry in 500",
    ]);
  });

  it("restarts for ever if the number of restarts has no limit", async () => {
    const { clock, log, crash } = createSupervised({ policy: { ...policy, maxRestarts: Number.POSITIVE_INFINITY } });
    await settled();
    for (let i = 0; i < 50; i++) {
      await crash();
      await clock.advance(1000);
    }
    assert.equal(log.filter((line) => line === "crashed, retry in 500").length, 46);
    assert.ok(!log.some((line) => line.startsWith("escalated")));
  });

  it("resets the count of restarts after a long enough uptime", async () => {
    const { clock, log, crash } = createSupervised();
    await settled();
    for (let i = 0; i < 20; i++) {
      await clock.advance(10_000);
      await crash();
      await clock.advance(0);
    }
    assert.equal(log.filter((line) => line === "crashed, retry in 0").length, 20);
  });

  it("counts failed starts like crashes, and a place whose onUp throws", async () => {
    let starts = 0;
    const { clock, log } = createSupervised({
      policy: { ...policy, maxRestarts: 3 },
      start: async () => {
        starts++;
        if (starts % 2 === 0) return createPlace().place;
        throw new ServerError("peer_gone", "died while it started");
      },
      onUp: () => {
        throw new Error("nobody home");
      },
    });
    await settled();
    await clock.advance(1000);
    assert.deepEqual(log.slice(0, 4), [
      "died while it started, retry in 0",
      "nobody home, retry in 100",
      "died while it started, retry in 200",
      "nobody home, no retry",
    ]);
    assert.match(log[4] ?? "", /^escalated/);
  });

  it("escalates at once when a start fails for a permanent reason", async () => {
    const { log } = createSupervised({
      start: () => Promise.reject(new ServerError("model_file_invalid", "expected a GGUF file")),
    });
    await settled();
    assert.deepEqual(log, ["expected a GGUF file, no retry", "escalated: expected a GGUF file"]);
  });

  it("leaves a crashed place down, or escalates, according to its policy", async () => {
    for (const [kind, last] of [
      ["stop", "crashed, no retry"],
      ["escalate", 'escalated: "den" is down after 0 restarts: crashed'],
    ] as const) {
      const { log, crash, lives } = createSupervised({ policy: { ...policy, kind } });
      await settled();
      await crash();
      assert.equal(log.at(-1), last);
      assert.equal(lives.length, 1);
    }
  });

  it("stops its place in order and does not restart it", async () => {
    const { supervisor, clock, log, lives } = createSupervised();
    await settled();
    await supervisor.stop(1000);
    await clock.advance(60_000);
    assert.deepEqual(log, ["up at 0", "stopped, no retry"]);
    assert.equal(lives.length, 1);
  });

  it("stopped during a backoff does not start its place again", async () => {
    const { supervisor, clock, crash, lives } = createSupervised();
    await settled();
    await crash();
    await clock.advance(0);
    await crash();
    await supervisor.stop(1000);
    await clock.advance(60_000);
    assert.equal(lives.length, 2);
  });

  it("stopped during a start cancels it, which is an orderly exit", async () => {
    const orderly: boolean[] = [];
    const { supervisor } = createSupervised({
      onDown: (exit) => void orderly.push(exit.orderly),
      start: (signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(new ServerError("cancelled", "the start was cancelled")));
        }),
    });
    await supervisor.stop(1000);
    assert.deepEqual(orderly, [true]);
  });
});
