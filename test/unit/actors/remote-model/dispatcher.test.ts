// Dispatcher of remote models: token order, cancellation, back pressure, fair queueing, retries and time limits, over real
// connections to fake servers.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { greedySampling } from "../../../../engines/generation.ts";
import {
  llamaEnd,
  llamaToken,
  llamaTokens,
  send,
  startStandIn,
  vllmTokens,
} from "../../../fixtures/remote/stand-in.ts";
import { endToken, openRig, until } from "./rig.ts";

const hello = [72, 105, 33];

describe("a sequence on another server", () => {
  it("ends at the limit, and at an end token, which is no part of the text", async (t) => {
    const far = await startStandIn({ answer: llamaTokens(hello) });
    const rig = await openRig(t, [far]);
    assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
    assert.equal(rig.of(1).end, "length");
    far.answer = llamaTokens([...hello, endToken], "eos");
    const ended = await rig.ended(rig.submit());
    assert.deepEqual([ended.tokens, ended.end], [hello, "stop"]);
    far.answer = llamaTokens([72, endToken, 73]);
    const ignoring = await rig.ended(rig.submit({ ignoreEos: true, maxNewTokens: 3 }));
    assert.deepEqual(ignoring.tokens, [72, endToken, 73]);
    await until(() => rig.dispatcher.statistics().running === 0);
    assert.deepEqual(rig.dispatcher.statistics().ended, { stop: 1, length: 2, cancelled: 0, error: 0 });
  });

  it("leaves its slot at once if the server goes on after a token that ends it here", async (t) => {
    const far = await startStandIn({
      slots: 1,
      answer: async (reply) => {
        for (let i = 1; !reply.destroyed; i++) {
          await send(reply, llamaToken(i === 2 ? 9 : 72, i));
          await sleep(20);
        }
      },
    });
    const rig = await openRig(t, [far]);
    const ended = await rig.ended(rig.submit({ stopTokens: [9], maxNewTokens: null }));
    assert.deepEqual([ended.tokens, ended.end], [[72], "stop"]);
    await until(() => far.cancelled === 1);
    assert.equal(rig.dispatcher.statistics().running, 0);
    far.answer = llamaTokens(hello);
    assert.deepEqual((await rig.ended(rig.submit({ maxNewTokens: 3 }))).tokens, hello);
  });

  it("tells the server which tokens end it", async (t) => {
    const far = await startStandIn({
      api: "vllm",
      answer: async (reply) => {
        await send(reply, vllmTokens([72]));
        await send(reply, vllmTokens([9], "stop"));
        reply.end();
      },
    });
    const rig = await openRig(t, [far]);
    for (const ignoreEos of [false, true]) {
      const ended = await rig.ended(rig.submit({ stopTokens: [9], ignoreEos }));
      assert.deepEqual([ended.tokens, ended.end], [[72], "stop"]);
    }
    assert.deepEqual(
      far.bodies.map(({ stop_token_ids }) => stop_token_ids),
      [[9, endToken], [9]],
    );
  });

  it("sends the prompt as tokens, every sampling setting, and the key", async (t) => {
    const far = await startStandIn({ answer: llamaTokens(hello) });
    const rig = await openRig(t, [far], { apiKey: "secret" });
    const sampling = { ...greedySampling, temperature: 0.5, topK: 7, seed: 11, logitBias: [[3, -1]] as const };
    await rig.ended(rig.submit({ sampling, choice: 2, maxNewTokens: 3 }));
    const [body] = far.bodies;
    assert.deepEqual(body?.prompt, [5, 6, 7]);
    const { n_predict, temperature, top_k, top_p, seed, logit_bias } = body ?? {};
    assert.deepEqual([n_predict, temperature, top_k, top_p, seed, logit_bias], [3, 0.5, 7, 1, 13, [[3, -1]]]);
    assert.ok(far.keys.every((key) => key === "Bearer secret"));
  });

  it("gets the tokens that llama-server leaves out within a character", async (t) => {
    const bytes = [...Buffer.from("a😀b")];
    const far = await startStandIn({
      answer: async (reply) => {
        await send(reply, { prompt_progress: { total: 3, cache: 2, processed: 3 }, tokens: [-1] });
        await send(reply, llamaToken(bytes[0] as number, 1, "a"));
        await send(reply, llamaToken(bytes[4] as number, 5, "😀"));
        await send(reply, llamaToken(bytes[5] as number, 6, "b"));
        await send(reply, llamaEnd(6));
        reply.end();
      },
    });
    const rig = await openRig(t, [far]);
    const ended = await rig.ended(rig.submit());
    assert.deepEqual([ended.tokens, ended.end, ended.cached], [bytes, "length", 2]);
  });

  it("closes the connection when it is cancelled, and frees its place for the next", async (t) => {
    const far = await startStandIn({ slots: 1, answer: (reply) => send(reply, llamaToken(72, 1)) });
    const rig = await openRig(t, [far]);
    const first = rig.submit();
    const second = rig.submit();
    await until(() => rig.of(first).tokens.length === 1);
    assert.equal(rig.dispatcher.statistics().waiting, 1);
    far.answer = llamaTokens(hello);
    rig.dispatcher.cancel(rig.subscriber, [first]);
    assert.deepEqual((await rig.ended(second)).tokens, hello);
    await until(() => far.cancelled === 1);
    rig.dispatcher.drop(rig.subscriber);
    assert.equal(rig.dispatcher.statistics().running, 0);
  });

  it("stops reading while it is paused", async (t) => {
    let sent = 0;
    const far = await startStandIn({
      answer: async (reply) => {
        const padding = "x".repeat(1000);
        for (let i = 1; i <= 20_000 && !reply.destroyed; i++) {
          await send(reply, { ...llamaToken(72, i), padding });
          sent = i;
        }
      },
    });
    const rig = await openRig(t, [far]);
    const id = rig.submit({ maxNewTokens: 400, prompt: Int32Array.of(1) });
    rig.dispatcher.setPaused(rig.subscriber, [id], true);
    await until(() => sent > 0);
    let before = -1;
    while (before !== sent) {
      before = sent;
      await sleep(150);
    }
    assert.ok(sent < 20_000, "the sender waits for the reader");
    assert.ok(rig.of(id).tokens.length < 400);
    rig.dispatcher.setPaused(rig.subscriber, [id], false);
    assert.equal((await rig.ended(id)).tokens.length, 400);
  });

  it("takes turns between clients that wait", async (t) => {
    const order: number[] = [];
    const far = await startStandIn({
      slots: 1,
      answer: async (reply, body, request) => {
        order.push(body.prompt[0] as number);
        await llamaTokens(hello)(reply, body, request);
      },
    });
    const rig = await openRig(t, [far]);
    const job = (client: string, first: number) =>
      rig.submit({ client, prompt: Int32Array.of(first, 1), maxNewTokens: 3 });
    const ids = [job("a", 1), job("a", 2), job("a", 3), job("b", 4)];
    await Promise.all(ids.map((id) => rig.ended(id)));
    assert.deepEqual(order, [1, 2, 4, 3]);
  });

  it("continues with the tokens that end its reasoning", async (t) => {
    const far = await startStandIn({ answer: llamaTokens([60, 50, 51, 52, 53]) });
    const rig = await openRig(t, [far]);
    const blanks = Int32Array.of(9);
    const reasoningBudget = { tokens: 2, blanks, begin: Int32Array.of(60), end: Int32Array.of(61, 62) };
    far.answer = async (reply, body, request) => {
      const isFirst = body.prompt.length === 3;
      await llamaTokens(isFirst ? [60, 50, 51, 52, 53] : [70, 71, endToken])(reply, body, request);
    };
    const ended = await rig.ended(rig.submit({ reasoningBudget, maxNewTokens: 20 }));
    assert.deepEqual(ended.tokens, [60, 50, 51, 61, 62, 70, 71]);
    assert.deepEqual(far.bodies[1]?.prompt, [5, 6, 7, 60, 50, 51, 61, 62]);
    assert.equal(far.bodies[1]?.n_predict, 15);
  });

  it("gets no reasoning token if the prompt has begun the reasoning and its budget is 0", async (t) => {
    const far = await startStandIn({ answer: llamaTokens([70, 71, endToken]) });
    const rig = await openRig(t, [far]);
    const empty = new Int32Array(0);
    const reasoningBudget = { tokens: 0, blanks: empty, begin: empty, end: Int32Array.of(61, 62) };
    const ended = await rig.ended(rig.submit({ reasoningBudget, maxNewTokens: 20 }));
    assert.deepEqual(ended.tokens, [61, 62, 70, 71]);
    assert.deepEqual(far.bodies[0]?.prompt, [5, 6, 7, 61, 62]);
    assert.equal(far.bodies[0]?.n_predict, 18);
    const cut = await rig.ended(rig.submit({ reasoningBudget, maxNewTokens: 1 }));
    assert.deepEqual([cut.tokens, cut.end], [[61], "length"]);
    assert.equal(far.bodies.length, 2);
  });

  it("is rejected with a specific error for what the server does not support", async (t) => {
    const far = await startStandIn({ answer: llamaTokens(hello) });
    const rig = await openRig(t, [far]);
    assert.equal((await rig.ended(rig.submit({ minNewTokens: 2 }))).error?.param, "min_tokens");
    assert.throws(() => rig.submit({ promptLogprobs: 1 }), { code: "unsupported", param: "logprobs" });
    assert.equal(rig.dispatcher.statistics().running, 0);
    assert.equal(far.bodies.length, 0);
  });
});
