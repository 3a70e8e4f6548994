// Faults of the servers of a remote model: each leads to the tokens of another attempt or to an error that names the server,
// and leaves no request running.
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Answer,
  llamaEnd,
  llamaToken,
  llamaTokens,
  send,
  startStandIn,
} from "../../../fixtures/remote/stand-in.ts";
import { openRig, until } from "./rig.ts";

const hello = [72, 105, 33];
const good = llamaTokens(hello);
const status =
  (code: number, headers: Record<string, string> = {}): Answer =>
  (reply) =>
    void reply.writeHead(code, headers).end(JSON.stringify({ error: { message: `is ${code}` } }));
const dies: Answer = (reply) => void reply.socket?.destroy();

/** Returns a handler that responds to each request with the next of these; the last is repeated. */
function inTurn(...answers: readonly Answer[]): Answer {
  let at = 0;
  return (...call) => (answers[Math.min(at++, answers.length - 1)] as Answer)(...call);
}

/** Returns a handler that closes the connections of `count` requests together, when all have arrived. */
function dieTogether(count: number): Answer {
  const held: ServerResponse[] = [];
  return (reply) => {
    held.push(reply);
    if (held.length === count) for (const one of held) one.socket?.destroy();
  };
}

describe("before the first token", () => {
  const faults: Readonly<Record<string, Answer>> = {
    "the connection breaks": dies,
    "status 500": status(500),
    "status 429": status(429),
    "an error event": async (reply) => {
      await send(reply, { error: { message: "out of memory" } });
      reply.end();
    },
    "no JSON": async (reply) => {
      await send(reply, "<html>");
      reply.end();
    },
    "JSON of another shape": async (reply) => {
      await send(reply, { hello: 1 });
      reply.end();
    },
    "an empty stream": (reply) => void reply.writeHead(200).end(),
  };
  for (const [fault, answer] of Object.entries(faults)) {
    it(`${fault}: the request is sent again, without a trace for the client`, async (t) => {
      const far = await startStandIn({ answer: inTurn(answer, good) });
      const rig = await openRig(t, [far]);
      const ended = await rig.ended(rig.submit({ maxNewTokens: 3 }));
      assert.deepEqual([ended.tokens, ended.error], [hello, null]);
      await until(() => rig.dispatcher.statistics().running === 0);
      assert.equal(rig.dispatcher.statistics().remote?.[0]?.retries, 1);
    });
  }

  it("the request is sent to another server, if there is one", async (t) => {
    const [bad, other] = await Promise.all([startStandIn({ answer: status(500) }), startStandIn({ answer: good })]);
    const rig = await openRig(t, [bad, other], { balance: "least" });
    for (let i = 0; i < 4; i++) assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
    // After three consecutive failures, the bad server gets no more requests.
    assert.equal(bad.bodies.length, 3);
    assert.equal(rig.upstreams[0]?.isUp, false);
    assert.match(rig.notices.join(), /failed \(failed: status 500: is 500\); it gets no requests/);
  });

  it("the request fails with an error that names the server, after remote_retries attempts", async (t) => {
    const far = await startStandIn({ answer: status(500) });
    const rig = await openRig(t, [far], { retries: 1 });
    const { error } = await rig.ended(rig.submit());
    assert.equal(error?.code, "model_failed");
    assert.match(
      error?.message ?? "",
      new RegExp(`${far.url}\\) failed in attempt 2 \\(failed: status 500: is 500\\)`),
    );
    assert.equal(far.bodies.length, 2);
  });

  it("a request that the server refuses is not sent again", async (t) => {
    const far = await startStandIn({ answer: status(400) });
    const rig = await openRig(t, [far]);
    const { error } = await rig.ended(rig.submit());
    assert.equal(error?.code, "invalid_value");
    assert.match(error?.message ?? "", /refuses the request: status 400: is 400/);
    assert.equal(far.bodies.length, 1);
    assert.equal(rig.upstreams[0]?.isUp, true);
  });

  it("a busy server gives queue_full, with the time after which to try again", async (t) => {
    const far = await startStandIn({ answer: status(429, { "retry-after": "0" }) });
    const rig = await openRig(t, [far]);
    const { error } = await rig.ended(rig.submit());
    assert.deepEqual([error?.code, error?.retryAfterSeconds], ["queue_full", 1]);
    assert.equal(far.bodies.length, 3);
    assert.equal(rig.upstreams[0]?.isUp, true);
  });

  it("a server that sends nothing is left after first_token_timeout_secs", async (t) => {
    const far = await startStandIn({ answer: inTurn(() => {}, good) });
    const rig = await openRig(t, [far], { firstTokenTimeoutMs: 300 });
    assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
    await until(() => far.cancelled === 1);
  });
});

describe("after the first token", () => {
  const begun =
    (then: Answer): Answer =>
    async (reply, body, request) => {
      await send(reply, llamaToken(72, 1));
      await then(reply, body, request);
    };

  it("a broken connection ends the sequence with a retryable error, and the tokens so far stay", async (t) => {
    const far = await startStandIn({ answer: begun((reply) => void setTimeout(() => reply.destroy(), 50)) });
    const rig = await openRig(t, [far]);
    const ended = await rig.ended(rig.submit());
    assert.deepEqual(ended.tokens, [72]);
    assert.equal(ended.error?.code, "model_failed");
    assert.match(ended.error?.message ?? "", /failed after 1 tokens/);
    assert.equal(far.bodies.length, 1);
    assert.equal(rig.dispatcher.statistics().running, 0);
  });

  it("a server that stalls is left after stall_timeout_secs, but not while the reader is behind", async (t) => {
    const far = await startStandIn({ answer: begun(() => {}) });
    const rig = await openRig(t, [far], { stallTimeoutMs: 300 });
    const paused = rig.submit();
    const other = rig.submit();
    await until(() => rig.of(paused).tokens.length + rig.of(other).tokens.length === 2);
    rig.dispatcher.setPaused(rig.subscriber, [paused], true);
    assert.match((await rig.ended(other)).error?.message ?? "", /stall_timeout_secs/);
    assert.equal(rig.of(paused).error, null);
    rig.dispatcher.setPaused(rig.subscriber, [paused], false);
    assert.match((await rig.ended(paused)).error?.message ?? "", /stall_timeout_secs/);
  });
});

describe("a server that goes away", () => {
  it("is down at once when it refuses connections; waiting requests fail, and the owner is told", async (t) => {
    const far = await startStandIn({ answer: good });
    const rig = await openRig(t, [far]);
    await far.stop();
    const { error } = await rig.ended(rig.submit());
    assert.equal(error?.code, "model_failed");
    await until(() => rig.downs.length > 0);
    assert.match(rig.downs[0] ?? "", /no server of the model answers: .*ECONNREFUSED/);
    assert.throws(() => rig.submit(), { code: "model_failed" });
    await far.restart();
  });

  it("several connections that break at once cost a delay, no request", async (t) => {
    const die = dieTogether(4);
    const far = await startStandIn({ answer: inTurn(die, die, die, die, good) });
    const rig = await openRig(t, [far]);
    const ids = Array.from({ length: 4 }, () => rig.submit({ maxNewTokens: 3 }));
    await until(() => rig.upstreams[0]?.isUp === false);
    // A request that comes meanwhile waits too.
    ids.push(rig.submit({ maxNewTokens: 3 }));
    for (const id of ids) {
      const { tokens, error } = await rig.ended(id);
      assert.deepEqual([tokens, error], [hello, null]);
    }
    assert.deepEqual(rig.downs, []);
    assert.equal(rig.upstreams[0]?.isUp, true);
  });

  it("is not down while it sends tokens to others: requests wait for the next probe", async (t) => {
    const stream: Answer = async (reply) => {
      for (let i = 1; i <= 60; i++) {
        await send(reply, llamaToken(72, i));
        await sleep(50);
      }
      await send(reply, llamaEnd(60));
      reply.end();
    };
    const die = dieTogether(3);
    const far = await startStandIn({ answer: inTurn(stream, die, die, die, good) });
    const rig = await openRig(t, [far]);
    const running = rig.submit({ maxNewTokens: 60 });
    await until(() => rig.of(running).tokens.length > 0);
    far.holdsProbes = true;
    const waiting = Array.from({ length: 3 }, () => rig.submit({ maxNewTokens: 3 }));
    await until(() => rig.upstreams[0]?.isUp === false);
    // The first probe is sent after half a second, and times out after another one.
    await sleep(2200);
    assert.equal(rig.upstreams[0]?.isDown, false);
    far.holdsProbes = false;
    for (const id of waiting) assert.deepEqual([rig.of(id).error, (await rig.ended(id)).tokens], [null, hello]);
    assert.equal((await rig.ended(running)).error, null);
  });

  it("is up while it sends tokens, though it answers no probes", async (t) => {
    const slowly: Answer = async (reply) => {
      for (let i = 1; i <= 50; i++) {
        await send(reply, llamaToken(72, i));
        await sleep(50);
      }
      await send(reply, llamaEnd(50));
      reply.end();
    };
    const far = await startStandIn({ answer: slowly });
    const rig = await openRig(t, [far], { probeIntervalMs: 800 });
    const id = rig.submit({ maxNewTokens: 50 });
    await until(() => rig.of(id).tokens.length > 0);
    far.isLoading = true;
    assert.equal((await rig.ended(id)).error, null);
    assert.equal(rig.upstreams[0]?.isUp, true);
    assert.equal(rig.upstreams[0]?.counts.failures, 0);
    // When it sends nothing, its probes count.
    await until(() => rig.upstreams[0]?.isDown === true);
  });

  it("is down when it answers no probe after its failures; waiting requests fail", async (t) => {
    const far = await startStandIn({ answer: dieTogether(4) });
    const rig = await openRig(t, [far]);
    const ids = Array.from({ length: 4 }, () => rig.submit());
    await until(() => rig.upstreams[0]?.isUp === false);
    far.isLoading = true;
    for (const id of ids) {
      assert.match((await rig.ended(id)).error?.message ?? "", /no server of the model answers: .*Loading model/);
    }
    assert.throws(() => rig.submit(), { code: "model_failed" });
  });

  it("is down when it accepts probes and never answers them; waiting requests fail", async (t) => {
    const far = await startStandIn({ answer: dieTogether(4) });
    const rig = await openRig(t, [far], { connectTimeoutMs: 300 });
    far.holdsProbes = true;
    const ids = Array.from({ length: 4 }, () => rig.submit());
    for (const id of ids)
      assert.match((await rig.ended(id)).error?.message ?? "", /no server of the model answers: .*no answer to GET/);
    assert.throws(() => rig.submit(), { code: "model_failed" });
  });

  for (const [outcome, answerProbe] of [
    ["succeeds", (reply) => void reply.setHeader("content-type", "application/json").end('{"data":[]}')],
    ["fails", (reply) => void reply.destroy()],
  ] as const satisfies readonly (readonly [string, (reply: ServerResponse) => void])[]) {
    it(`waits for a new probe after its failures, though a probe from before them ${outcome}`, async (t) => {
      const die = dieTogether(3);
      const far = await startStandIn({ answer: inTurn(die, die, die, good) });
      const rig = await openRig(t, [far], { probeIntervalMs: 300, connectTimeoutMs: 5000 });
      const [upstream] = rig.upstreams;
      far.holdsProbes = true;
      await until(() => far.heldProbes.length === 1);
      const ids = Array.from({ length: 3 }, () => rig.submit({ maxNewTokens: 3 }));
      await until(() => upstream?.isUp === false);
      answerProbe(far.heldProbes[0] as ServerResponse);
      // The new probe is sent when the server's backoff time has passed.
      await until(() => far.heldProbes.length === 2);
      assert.deepEqual([upstream?.isUp, upstream?.isDown], [false, false]);
      for (const id of ids) assert.equal(rig.of(id).error, null);
      far.holdsProbes = false;
      (far.heldProbes[1] as ServerResponse).destroy();
      far.answer = good;
      await until(() => upstream?.isUp === true);
      assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
    });
  }

  it("gets requests again when it answers probes", async (t) => {
    const [far, other] = await Promise.all([startStandIn({ answer: good }), startStandIn({ answer: good })]);
    const rig = await openRig(t, [far, other], { balance: "least", probeIntervalMs: 300 });
    await far.stop();
    for (let i = 0; i < 3; i++) assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
    assert.equal(rig.upstreams[0]?.isUp, false);
    await far.restart();
    far.isLoading = true;
    await until(() => far.keys.length > 4);
    assert.equal(rig.upstreams[0]?.isUp, false);
    far.isLoading = false;
    await until(() => rig.upstreams[0]?.isUp === true);
    assert.match(rig.notices.at(-1) ?? "", /answers again after .* s; it gets requests/);
    assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
  });

  it("gets none if it comes back with less context than before", async (t) => {
    const [far, other] = await Promise.all([startStandIn({ answer: good }), startStandIn({ answer: good })]);
    const rig = await openRig(t, [far, other], { balance: "least" });
    await far.stop();
    for (let i = 0; i < 3; i++) await rig.ended(rig.submit({ maxNewTokens: 3 }));
    far.context = 256;
    await far.restart();
    await until(() => /expected a context of 512, as at the start; got 256/.test(rig.upstreams[0]?.reason ?? ""));
    assert.equal(rig.upstreams[0]?.isUp, false);
  });

  it("a request that waits for a server longer than queue_timeout_secs fails", async (t) => {
    const far = await startStandIn({ slots: 1, answer: (reply) => send(reply, llamaToken(72, 1)) });
    const rig = await openRig(t, [far], { queueTimeoutMs: 300 });
    rig.submit();
    const { error } = await rig.ended(rig.submit());
    assert.equal(error?.code, "queue_timeout");
  });

  it("a later group of an embedding request has no queue timeout", async (t) => {
    const far = await startStandIn({ slots: 1, answer: (reply) => send(reply, llamaToken(72, 1)) });
    const rig = await openRig(t, [far], { queueTimeoutMs: 300 });
    rig.submit();
    const { signal } = new AbortController();
    const run = (hasBegun: boolean) =>
      rig.dispatcher.run(
        { client: "c", prompts: [Int32Array.of(1)], adapter: 0, priority: 0, hasBegun },
        async () => "ran",
        signal,
      );
    const later = run(true);
    later.catch(() => {});
    await assert.rejects(run(false), { code: "queue_timeout" });
    await sleep(300);
    rig.dispatcher.cancel(rig.subscriber, [1]);
    assert.equal(await later, "ran");
  });

  it("a request that is repeated waits again", async (t) => {
    const after =
      (ms: number, answer: Answer): Answer =>
      async (...call) => {
        await sleep(ms);
        await answer(...call);
      };
    const far = await startStandIn({ slots: 1, answer: inTurn(after(700, status(500)), after(600, good), good) });
    const rig = await openRig(t, [far], { queueTimeoutMs: 800 });
    const first = rig.submit({ maxNewTokens: 3 });
    await sleep(300);
    // The second request gets the slot when the first request has failed.
    const second = rig.submit({ maxNewTokens: 3 });
    assert.deepEqual((await rig.ended(second)).tokens, hello);
    const { error, tokens } = await rig.ended(first);
    assert.deepEqual([error, tokens], [null, hello]);
  });
});
