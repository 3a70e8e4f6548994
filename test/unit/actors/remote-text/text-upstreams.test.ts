// Circuit breaker of the servers of a model in text mode: which failures and successes decide whether a server gets requests.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { TextUpstream } from "../../../../actors/remote-text/text-upstreams.ts";
import { type RemoteSettings, UpstreamFailure } from "../../../../engines/remote/upstream.ts";
import { until } from "../remote-model/rig.ts";

const settings: RemoteSettings = {
  ...{ urls: [], model: "far", apiKey: null, balance: "least", slots: 8, retries: 2 },
  ...{ connectTimeoutMs: 1000, firstTokenTimeoutMs: 5000, stallTimeoutMs: 5000, probeIntervalMs: 60_000 },
};
const broken = new UpstreamFailure("connection", "closed");

/** Returns a server that has failed and now gets one request, the trial, while a request from before its failure runs. */
async function onTrial() {
  const upstream = new TextUpstream("http://127.0.0.1:1", settings);
  assert.equal(upstream.began(), false, "the older request");
  for (let i = 0; i < 3; i++) {
    upstream.began();
    upstream.ended(false);
    assert.equal(upstream.failed(broken, false), i === 2);
  }
  assert.deepEqual([upstream.isUp, upstream.isDown, upstream.hasRoom], [false, false, false]);
  await until(() => upstream.isUp);
  assert.equal(upstream.hasRoom, true);
  assert.equal(upstream.began(), true, "the trial");
  assert.equal(upstream.hasRoom, false);
  return upstream;
}

describe("a server of a model in text mode that has failed", () => {
  it("gets no further request when an older one fails or ends, until the trial has succeeded", async () => {
    const upstream = await onTrial();
    assert.equal(upstream.failed(broken, false), false);
    upstream.ended(false);
    assert.deepEqual([upstream.isUp, upstream.isDown, upstream.hasRoom], [true, false, false]);
    assert.equal(upstream.statistics.up, 0);
    upstream.succeeded();
    assert.equal(upstream.hasRoom, true);
    assert.equal(upstream.statistics.up, 1);
  });

  it("is down when the trial fails, until another trial succeeds", async () => {
    const upstream = await onTrial();
    upstream.ended(true);
    assert.equal(upstream.failed(broken, true), true);
    assert.deepEqual([upstream.isUp, upstream.isDown], [false, true]);
    await until(() => upstream.isUp);
    assert.equal(upstream.began(), true);
    upstream.succeeded();
    upstream.ended(true);
    assert.deepEqual([upstream.isDown, upstream.hasRoom], [false, true]);
  });
});
