import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { MessageChannel } from "node:worker_threads";
import { type GenerateEvent, greedySampling, type OpenRequest } from "../../../../engines/generation.ts";
import type { ModelMedia } from "../../../../engines/media/model-media.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { seededRandom } from "../../../fixtures/scheduling.ts";
import { reportedTokens, textsOf, tokensOf } from "../../../fixtures/text/logprobs.ts";
import { attachment, createServer, crossed, readAll, tinyTokenizer } from "./rig.ts";

const texts = textsOf(createVocabulary(await tinyTokenizer()));

async function startServer(t: TestContext, options: Parameters<typeof createServer>[0] = {}) {
  const server = await createServer(options);
  t.after(server.close);
  return server;
}

const lastOf = (events: readonly GenerateEvent[]) => events.at(-1);

describe("the generation actor and a model", () => {
  it("answers a request with what the engine generates", async (t) => {
    const { start } = await startServer(t);
    const [alone, again] = [await readAll(start()), await readAll(start())];
    const text = (events: readonly GenerateEvent[]) =>
      events.map((event) => ("text" in event ? event.text : "")).join();
    assert.equal(lastOf(alone)?.type, "done");
    assert.equal(text(alone), text(again));
  });

  it("reports once the prompt's logprobs and the number of cached prompt tokens", async (t) => {
    const { start } = await startServer(t, {
      engine: { sequenceTokens: 512 },
      limits: { prefixCacheEntries: 4 },
    });
    const prompt = { kind: "text", text: "a prompt of many words, ".repeat(20) } as const;
    const events = await readAll(start({ prompt, promptLogprobs: 2, choices: 2 }));
    const [told, ...more] = events.flatMap((event) => (event.type === "prompt" ? [event.logprobs] : []));
    assert.ok(told !== undefined && more.length === 0);
    const tokens = tokensOf(told, texts);
    assert.equal(told.count, tokens.length);
    assert.equal(tokens.map(({ token }) => token).join(""), prompt.text);
    assert.ok(tokens.slice(1).every(({ logprob, top }) => logprob < 0 && top.length === 2));
    const done = lastOf(await readAll(start({ prompt })));
    assert.ok(done?.type === "done");
    assert.ok(done.usage.cachedTokens > 0 && done.usage.cachedTokens < done.usage.promptTokens);
  });

  it("returns the likeliest of its candidates, by the engine's own logprobs", async (t) => {
    const { start } = await startServer(t, { engine: { sequenceTokens: 512 } });
    const sampling = { ...greedySampling, temperature: 1, seed: 3, topLogprobs: 0 };
    const said = async (changes: Partial<OpenRequest>) => {
      const events = await readAll(start({ sampling, ...changes }));
      return [0, 1, 2, 3].map((choice) => {
        const pieces = events.flatMap((event) => (event.type === "text" && event.choice === choice ? [event] : []));
        const logprobs = reportedTokens(pieces, texts);
        const mean = logprobs.reduce((sum, { logprob }) => sum + logprob, 0) / logprobs.length;
        return { text: pieces.map(({ text }) => text).join(""), mean };
      });
    };
    const all = (await said({ choices: 4 })).toSorted((a, b) => b.mean - a.mean);
    const best = await said({ choices: 2, candidates: 4 });
    assert.deepEqual(best.slice(0, 2), all.slice(0, 2));
  });

  it("returns an error for a model that does not exist, and for a detached one the given reason", async (t) => {
    const { start, models, engine } = await startServer(t);
    const [missing] = await readAll(start({ model: "other" }));
    assert.ok(missing?.type === "error" && missing.error.code === "model_loading");
    const running = readAll(start({ maxTokens: 100 }));
    await crossed();
    await models.ask("detachModel", { id: "tiny", error: { code: "model_failed", message: "gone for good" } });
    const failed = lastOf(await running);
    assert.ok(failed?.type === "error" && failed.error.code === "model_failed");
    const [refused] = await readAll(start());
    assert.ok(refused?.type === "error" && refused.error.message === "gone for good");
    await crossed();
    assert.equal(engine.cache.size, 0);
  });

  it("ends every run with one retryable error when the engine fails", async (t) => {
    let steps = 0;
    const onStep = () => {
      if (++steps === 4) throw new ServerError("model_failed", "the engine broke");
    };
    const { start, running, modelEnd } = await startServer(t, { engine: { onStep } });
    const runs = [start({ maxTokens: 50 }), start({ maxTokens: 50, choices: 3 })].map((reader) => readAll(reader));
    await assert.rejects(running, /the engine broke/);
    modelEnd.close(); // The place that ended closes this link too, which must not cause a second error.
    for (const events of await Promise.all(runs)) {
      const errors = events.filter(({ type }) => type === "error");
      assert.deepEqual(errors, [{ type: "error", error: { code: "model_failed", message: "the engine broke" } }]);
      assert.equal(lastOf(events), errors[0]);
    }
  });

  it("rejects a whole request that the queue has no room for, and keeps none of its sequences", async (t) => {
    const { start, engine } = await startServer(t, { engine: { maxSequences: 2 }, limits: { maxQueue: 1 } });
    const first = readAll(start({ maxTokens: 60, choices: 2 }));
    const refused = await readAll(start({ choices: 4 }));
    assert.ok(refused[0]?.type === "error" && refused[0].error.code === "queue_full" && refused.length === 1);
    assert.equal(lastOf(await first)?.type, "done");
    await crossed();
    assert.equal(engine.cache.size, 0);
  });

  it("rejects exactly the requests beyond slots plus queue, before it processes the prompts", async (t) => {
    const { start, engine, loop } = await startServer(t, { engine: { maxSequences: 2 }, limits: { maxQueue: 3 } });
    const unreadable = { prompt: { kind: "chat", messages: [], templateArguments: null as never } } as const;
    const taken = Array.from({ length: 5 }, () => readAll(start({ maxTokens: 60 })));
    const over = Array.from({ length: 20 }, () => readAll(start(unreadable)));
    for (const events of await Promise.all(over)) {
      const [event] = events;
      assert.ok(event?.type === "error" && event.error.code === "queue_full" && events.length === 1);
      assert.equal(event.error.retryAfterSeconds, 1);
    }
    for (const events of await Promise.all(taken)) assert.equal(lastOf(events)?.type, "done");
    assert.equal(lastOf(await readAll(start()))?.type, "done", "there is room again");
    await crossed();
    assert.equal(engine.cache.size, 0);
    assert.equal(loop.step(), false);
  });

  it("asks the model for sequences of the request's client", async (t) => {
    const { start, engine } = await startServer(t, {
      engine: { maxSequences: 1, sequenceTokens: 512 },
      limits: { maxQueue: 8 },
    });
    const ended: string[] = [];
    const run = async (client: string) => {
      await readAll(start({ client, maxTokens: 20 }));
      ended.push(client);
    };
    await Promise.all(["many", "many", "many", "one"].map(run));
    assert.deepEqual(ended, ["many", "many", "one", "many"]);
    assert.equal(engine.cache.size, 0);
  });

  it("leaks no sequence over 200 runs that are cancelled, stopped or finished at random", async (t) => {
    const { start, engine, loop } = await startServer(t, {
      engine: { maxSequences: 3 },
      limits: { maxQueue: 12 },
    });
    const random = seededRandom(5);
    const below = (n: number) => Math.floor(random() * n);
    const ends: Record<string, number> = {};
    const runs: Promise<void>[] = [];
    for (let i = 0; i < 200; i++) {
      const changes = { choices: 1 + below(3), maxTokens: 1 + below(60), stop: random() < 0.3 ? ["a", "e"] : [] };
      const reader = start(changes);
      const patience = random() < 0.5 ? below(8) : Number.POSITIVE_INFINITY;
      runs.push(
        (async () => {
          let taken = 0;
          let end = "cancelled";
          if (patience === 0) reader.cancel();
          for await (const batch of reader) {
            end = batch.at(-1)!.type;
            if (++taken >= patience) break;
          }
          ends[end] = (ends[end] ?? 0) + 1;
        })(),
      );
      if (random() < 0.7) await crossed();
    }
    await Promise.all(runs);
    await crossed();
    assert.ok(ends.done! > 20 && ends.cancelled! > 5, JSON.stringify(ends));
    assert.equal(loop.step(), false, "nothing is left to run");
    assert.equal(engine.cache.size, 0);
  });

  it("frees the bytes of images when they are prepared, not when the answer ends", async (t) => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const used = () => {
      collect();
      collect();
      return process.memoryUsage().arrayBuffers;
    };
    const modelMedia = {
      ...{ prepare: async () => [], spans: () => [], release: () => {}, drop: () => {} },
      statistics: { hits: 0, misses: 0 },
    } as unknown as ModelMedia;
    const { start } = await startServer(t, { engine: { sequenceTokens: 512 }, media: modelMedia });
    const size = 64 * 2 ** 20;
    const before = used();
    // A separate function, so that no variable of the test keeps the bytes alive.
    const begin = () => {
      const source = { kind: "data", bytes: new Uint8Array(size), digest: "a" } as const;
      return start({ maxTokens: 400, media: [{ key: "a", param: "messages", source }] });
    };
    for await (const batch of begin()) {
      assert.notEqual(batch.at(-1)?.type, "error", JSON.stringify(batch));
      if (batch.at(-1)?.type !== "text") continue;
      await crossed();
      const kept = used() - before;
      assert.ok(kept < size / 2, `${kept} bytes are kept`);
      break;
    }
  });

  it("handles a cancel at once while another model is being attached", async (t) => {
    const { engine, start, attach, loop } = await startServer(t, { engine: { sequenceTokens: 512 } });
    const { port1, port2 } = new MessageChannel();
    t.after(() => port2.close());
    const attached = attach({ ...(await attachment(port1, engine)), id: "other" });
    const reader = start({ maxTokens: 400 });
    await crossed();
    reader.cancel();
    await attached;
    await crossed();
    assert.equal(engine.cache.size, 0);
    assert.equal(loop.step(), false);
    assert.ok(loop.snapshot().tokens < 400, `${loop.snapshot().tokens} tokens for a reader that is gone`);
  });
});
