// Embedding requests to the servers of a remote model: retries, and servers that answer nothing else while they compute.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { embedded } from "../../../../engines/remote/discover.ts";
import { type Answer, type StandIn, startStandIn } from "../../../fixtures/remote/stand-in.ts";
import { openRig, type RigOptions, until } from "./rig.ts";

const vectors: Answer = (reply) => void reply.end(JSON.stringify({ data: [{ index: 0, embedding: [1, 2] }] }));
const prompt = Int32Array.of(5, 6);

async function openEmbedder(t: TestContext, standIns: readonly StandIn[], options: RigOptions = {}) {
  const rig = await openRig(t, standIns, options);
  const stop = new AbortController();
  const { signal } = stop;
  const timeoutMs = options.firstTokenTimeoutMs ?? 20_000;
  return {
    ...rig,
    stop: () => stop.abort(),
    embed: () =>
      rig.dispatcher.run(
        { client: "me", prompts: [prompt], adapter: 0, priority: 0, hasBegun: false },
        ({ connection }) => embedded(connection, "far", [prompt], { timeoutMs, signal }),
        signal,
      ),
  };
}

describe("an embedding request", () => {
  it("is sent again after the time for which a busy server asks", async (t) => {
    const times: number[] = [];
    const far = await startStandIn({
      answer: (reply, ...rest) => {
        times.push(performance.now());
        if (times.length > 1) return vectors(reply, ...rest);
        reply.writeHead(429, { "retry-after": "1" }).end();
      },
    });
    const rig = await openEmbedder(t, [far]);
    const result = rig.embed();
    await until(() => rig.dispatcher.statistics().waiting === 1);
    assert.equal(rig.dispatcher.statistics().running, 0, "it leaves its slot");
    assert.deepEqual(await result, Float32Array.of(1, 2));
    assert.ok((times[1] as number) - (times[0] as number) > 900, String(times));
    assert.equal(rig.upstreams[0]?.counts.retries, 1);
  });

  it("is sent to another server at once, if there is one", async (t) => {
    const busy = await startStandIn({ answer: (reply) => void reply.writeHead(429, { "retry-after": "5" }).end() });
    const other = await startStandIn({ answer: vectors });
    const rig = await openEmbedder(t, [busy, other], { balance: "least" });
    const before = performance.now();
    assert.deepEqual(await rig.embed(), Float32Array.of(1, 2));
    assert.equal(busy.bodies.length, 1);
    assert.ok(performance.now() - before < 4000);
  });

  it("can be cancelled while it waits for its next attempt", async (t) => {
    const far = await startStandIn({ answer: (reply) => void reply.writeHead(429, { "retry-after": "5" }).end() });
    const rig = await openEmbedder(t, [far]);
    const result = rig.embed();
    await until(() => rig.dispatcher.statistics().waiting === 1);
    rig.stop();
    await assert.rejects(result, { code: "cancelled" });
    assert.equal(rig.dispatcher.statistics().waiting, 0);
  });

  it("fails while it waits for its next attempt, if no server is left", async (t) => {
    const far = await startStandIn({ answer: (reply) => void reply.writeHead(429, { "retry-after": "5" }).end() });
    const rig = await openEmbedder(t, [far], { probeIntervalMs: 300 });
    const result = rig.embed();
    await until(() => rig.dispatcher.statistics().waiting === 1);
    await Promise.all([assert.rejects(result, { message: /no server of the model answers/ }), far.stop()]);
  });

  it("ends with its vectors, though the server answers no probe meanwhile", async (t) => {
    const replies: (() => void)[] = [];
    const far = await startStandIn({ answer: (...call) => void replies.push(() => void vectors(...call)) });
    const rig = await openEmbedder(t, [far], { probeIntervalMs: 100, connectTimeoutMs: 200 });
    const result = rig.embed();
    await until(() => replies.length === 1);
    far.holdsProbes = true;
    // Four probes without an answer would show that a server is down.
    await until(() => far.heldProbes.length > 5);
    assert.deepEqual([rig.upstreams[0]?.isUp, rig.downs], [true, []]);
    replies[0]?.();
    assert.deepEqual(await result, Float32Array.of(1, 2));
  });

  it("fails after its time limit if the server is gone, and the owner is told", async (t) => {
    const far = await startStandIn({ answer: () => {} });
    const options = { probeIntervalMs: 100, connectTimeoutMs: 200, firstTokenTimeoutMs: 2500 };
    const rig = await openEmbedder(t, [far], options);
    const result = rig.embed();
    await until(() => far.bodies.length === 1);
    far.holdsProbes = true;
    await assert.rejects(result, { code: "model_failed", message: /no server of the model answers/ });
    assert.equal(far.bodies.length, 1, "a server that answers no probe gets no second attempt");
    await until(() => rig.downs.length > 0);
  });

  it("is not cut off when a probe fails: the owner is told when it has ended", async (t) => {
    const replies: (() => void)[] = [];
    const far = await startStandIn({ answer: (...call) => void replies.push(() => void vectors(...call)) });
    const rig = await openEmbedder(t, [far], { probeIntervalMs: 100 });
    const result = rig.embed();
    await until(() => replies.length === 1);
    far.isLoading = true;
    await until(() => rig.upstreams[0]?.isDown === true);
    await assert.rejects(rig.embed(), { message: /no server of the model answers/ });
    // The dispatcher checks its servers four times a second.
    await sleep(600);
    assert.deepEqual(rig.downs, []);
    replies[0]?.();
    assert.deepEqual(await result, Float32Array.of(1, 2));
    await until(() => rig.downs.length > 0);
  });
});
