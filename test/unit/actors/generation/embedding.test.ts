// Embedding requests, from the generation actor to a model that only records its jobs.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { MessageChannel } from "node:worker_threads";
import type { Embeddings } from "../../../../actors/api/inference.ts";
import { Embedding } from "../../../../actors/generation/embedding.ts";
import { maxSim } from "../../../../actors/generation/vectors.ts";
import type { ModelProtocol, PoolJob } from "../../../../actors/messages.ts";
import { readHeadBytes } from "../../../../engines/files/gguf/reader.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import type { Ref } from "../../../../runtime/actor/ref.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../../../runtime/errors.ts";
import { createFakeEngine, type FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { inlineTextTasks } from "../../../fixtures/fakes/inline-tasks.ts";
import { attachment, createServer, crossed, embedInputs, readAll, tinyTokenizer } from "./rig.ts";

interface Asked {
  readonly id: number;
  readonly job: PoolJob;
  /** Responds to each prompt with a vector: its first token, `second`, its length. */
  answer(second?: number): void;
  refuse(error: Error): void;
}

async function startEmbedding(
  inputs: readonly string[] | readonly (readonly number[])[],
  options: FakeEngineOptions & {
    readonly truncateInputs?: boolean;
    readonly maxQueue?: number;
    readonly dimensions?: number;
  } = {},
) {
  const { truncateInputs = false, maxQueue = 100, dimensions, ...engine } = options;
  const { capacity, capabilities } = createFakeEngine(engine);
  const { port1, port2 } = new MessageChannel();
  const message = await attachment(port1, { capacity, capabilities });
  port2.close();
  const tasks = inlineTextTasks();
  const templateCapabilities = { usual: null, withTools: null };
  const key = await tasks.open({
    ...message,
    head: await readHeadBytes(message.path),
    template: null,
    templateCapabilities,
  });
  const stop = new AbortController();
  const { signal } = stop;
  const asked: Asked[] = [];
  const cancelled: number[] = [];
  const actor = {
    place: "model",
    name: "model",
    ask: (_method: string, { id, job }: { id: number; job: PoolJob }) =>
      new Promise<Float32Array>((resolve, reject) => {
        const answer = (second = 0) =>
          resolve(Float32Array.from(job.prompts.flatMap((prompt) => [prompt[0]!, second, prompt.length])));
        asked.push({ id, job, answer, refuse: reject });
      }),
    tell: (_method: string, { ids }: { ids: readonly number[] }) => void cancelled.push(...ids),
  } as unknown as Ref<ModelProtocol>;
  let nextId = 1;
  const embedded = new Embedding({
    request: {
      ...{ model: "tiny", client: "me", inputs: embedInputs(inputs), truncateInputs, priority: 3 },
      ...(dimensions !== undefined && { dimensions }),
    },
    adapter: null,
    model: {
      tokenize: (group) => tasks.tokenize(key, group, { truncates: truncateInputs, client: "me", signal }),
      actor,
      capacity,
      pooling: capabilities.pooling,
      pooledLength: capabilities.pooledLength,
      maxQueue,
      nextId: () => nextId++,
    },
    signal,
  }).run();
  embedded.catch(() => {});
  await crossed();
  const cancel = () => stop.abort(new ServerError("cancelled", "the reader has left"));
  return { embedded, cancel, asked, cancelled };
}

async function errorOf(embedded: Promise<Embeddings>): Promise<ErrorRecord> {
  const error = await embedded.then(
    () => assert.fail("the request was not refused"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof ServerError, String(error));
  return toErrorRecord(error);
}

describe("a request for embeddings", () => {
  it("gets a vector of length 1 for each input, in order, and the tokens of all", async () => {
    const { embedded, asked } = await startEmbedding([[3, 4, 5, 6], [10], [0, 1]]);
    assert.deepEqual(
      asked.map(({ job }) => [job.client, job.priority, job.prompts.map((prompt) => [...prompt])]),
      [["me", 3, [[3, 4, 5, 6], [10], [0, 1]]]],
    );
    asked[0]!.answer();
    const { vectors, promptTokens } = await embedded;
    assert.equal(promptTokens, 7);
    const expected = [
      [0.6, 0, 0.8],
      [10 / Math.hypot(10, 1), 0, 1 / Math.hypot(10, 1)],
      [0, 0, 1],
    ];
    vectors.forEach((vector, i) => {
      assert.deepEqual(Array.from(vector, Math.fround), expected[i]!.map(Math.fround));
    });
  });

  it("keeps the first elements of a vector, scaled to length 1, if fewer are asked for", async () => {
    const { embedded, asked } = await startEmbedding([[3, 4]], { dimensions: 1 });
    asked[0]!.answer(4);
    assert.deepEqual([...(await embedded).vectors[0]!], [1]);
    const { embedded: longer } = await startEmbedding([[3, 4]], { dimensions: 2 });
    await assert.rejects(longer, { code: "invalid_value", param: "dimensions" });
  });

  it("feeds many inputs in groups, two at a time, and returns them in order however they arrive", async () => {
    const inputs = Array.from({ length: 9 }, (_, i) => [i + 1]);
    const { embedded, asked } = await startEmbedding(inputs, { maxSequences: 2 });
    const order = [1, 0, 2, 4, 3];
    for (const group of order) {
      assert.ok(asked.length <= order.indexOf(group) + 2);
      asked[group]!.answer();
      await crossed();
    }
    assert.deepEqual(
      asked.map(({ job }) => job.prompts.length),
      [2, 2, 2, 2, 1],
    );
    const { vectors } = await embedded;
    assert.deepEqual(
      vectors.map((vector) => Math.round(vector[0]! / vector[2]!)),
      [1, 2, 3, 4, 5, 6, 7, 8, 9],
    );
  });

  it("marks all groups after the first, which must not be refused when the first has been computed", async () => {
    const inputs = Array.from({ length: 5 }, (_, i) => [i + 1]);
    const { asked } = await startEmbedding(inputs, { maxSequences: 2 });
    asked[0]!.answer();
    await crossed();
    assert.deepEqual(
      asked.map(({ job }) => job.hasBegun),
      [false, true, true],
    );
  });

  it("feeds one group at a time if the model has no queue for another", async () => {
    const { asked } = await startEmbedding([[1], [2], [3]], { maxSequences: 2, maxQueue: 1 });
    assert.equal(asked.length, 1);
    asked[0]!.answer();
    await crossed();
    assert.equal(asked.length, 2);
  });

  it("ends a group when its tokens fill a step", async () => {
    const inputs = Array.from({ length: 3 }, () => Array.from({ length: 40 }, () => 1));
    const { asked } = await startEmbedding(inputs, { maxBatchTokens: 64 });
    assert.deepEqual(
      asked.map(({ job }) => job.prompts.length),
      [2, 1],
    );
  });

  it("cancels running groups when its reader disconnects, and feeds no more", async () => {
    const inputs = Array.from({ length: 8 }, () => [1]);
    const { embedded, cancel, asked, cancelled } = await startEmbedding(inputs, { maxSequences: 1 });
    cancel();
    await crossed();
    assert.deepEqual(cancelled, [1, 2]);
    asked[0]!.answer();
    await crossed();
    assert.equal(asked.length, 2);
    await assert.rejects(embedded, { code: "cancelled" });
  });

  it("ends with the model's one error, and cancels the other group", async () => {
    const inputs = Array.from({ length: 8 }, () => [1]);
    const { embedded, asked, cancelled } = await startEmbedding(inputs, { maxSequences: 1 });
    asked[1]!.refuse(new ServerError("queue_full", "full"));
    assert.deepEqual(await errorOf(embedded), { code: "queue_full", message: "full" });
    assert.ok(cancelled.includes(1));
  });

  it("fails where the model's output is no number", async () => {
    const { embedded, asked } = await startEmbedding([[1]]);
    asked[0]!.answer(Number.NaN);
    assert.equal((await errorOf(embedded)).code, "model_failed");
  });

  it("rejects unknown tokens and inputs that are too long, with a specific error", async () => {
    const unknown = await startEmbedding([[1], [512]]);
    assert.deepEqual(await errorOf(unknown.embedded), {
      code: "invalid_value",
      message: 'expected tokens of model "tiny", 0 to 511, got 512',
      param: "input",
    });
    const long = Array.from({ length: 65 }, () => 1);
    const tooLong = await startEmbedding([long], { sequenceTokens: 64 });
    const error = await errorOf(tooLong.embedded);
    assert.equal(error.code, "context_length_exceeded");
    assert.match(error.message, /maximum context length is 64 tokens\. However, you requested 65 tokens/);
    const wide = await startEmbedding(["word ".repeat(10_000)], { sequenceTokens: 64 });
    assert.match((await errorOf(wide.embedded)).message, /at least \d+ in one input/);
  });

  it("rejects more vectors than one response can hold", async () => {
    const capabilities = { pooledLength: 2 ** 21 };
    assert.equal((await startEmbedding([[1], [2]], { capabilities })).asked.length, 1);
    const { embedded, asked } = await startEmbedding([[1], [2], [3]], { capabilities });
    const { code, message } = await errorOf(embedded);
    assert.deepEqual([code, asked.length], ["invalid_value", 0]);
    assert.match(message, /at most 2 inputs a request, got 3/);
  });

  it("keeps the start of an input that is too long if it may be truncated", async () => {
    const { asked } = await startEmbedding(["one two three ".repeat(500), "one"], {
      sequenceTokens: 64,
      truncateInputs: true,
    });
    const [long, short] = asked.flatMap(({ job }) => job.prompts);
    const vocabulary = createVocabulary(await tinyTokenizer());
    assert.deepEqual(long, vocabulary.encode("one two three ".repeat(50)).slice(0, 64));
    assert.deepEqual(short, vocabulary.encode("one"));
  });

  it("accepts inputs up to one step for a model that must process an input whole", async () => {
    const long = Array.from({ length: 33 }, () => 1);
    const { embedded } = await startEmbedding([long], {
      maxBatchTokens: 32,
      capabilities: { wholeSequences: true },
    });
    assert.match((await errorOf(embedded)).message, /length is 32 tokens \(max_num_batched_tokens\)/);
  });
});

describe("the similarity of a query and a document", () => {
  const { signal } = new AbortController();

  it("is the sum of the largest products with the query's vectors", async () => {
    const query = Float32Array.of(1, 0, 0, 1);
    const document = Float32Array.of(0.5, 0.25, 0.75, -1, -1, 0.5);
    assert.deepEqual([...(await maxSim(query, document, 2, signal))], [1.25]);
  });

  it("lets other work of the thread run in between, and ends when its reader disconnects", async () => {
    const [query, document] = [new Float32Array(64 * 128).fill(0.5), new Float32Array(4096 * 128).fill(0.5)];
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    assert.deepEqual([...(await maxSim(query, document, 128, signal))], [64 * 32]);
    clearInterval(timer);
    assert.ok(turns >= 4, `${turns} turns`);
    const stop = new AbortController();
    setImmediate(() => stop.abort(new ServerError("cancelled", "the reader has left")));
    await assert.rejects(maxSim(query, document, 128, stop.signal), { code: "cancelled" });
  });
});

describe("the generation actor and the capabilities of a model", () => {
  async function server(t: TestContext, engine: FakeEngineOptions) {
    const made = await createServer({ engine });
    t.after(made.close);
    return made;
  }

  it("refuses to generate text with a model that only makes embeddings", async (t) => {
    const { start } = await server(t, { capabilities: { generates: false } });
    const [event] = await readAll(start());
    assert.ok(event?.type === "error" && event.error.code === "unsupported" && event.error.param === "model");
    assert.match(event.error.message, /\/v1\/embeddings/);
    const scoring = await server(t, { capabilities: { generates: false, pooling: "rank" } });
    const [other] = await readAll(scoring.start());
    assert.ok(other?.type === "error" && /scores texts/.test(other.error.message));
    assert.doesNotMatch(other.error.message, /embeddings/);
  });

  it("refuses embeddings with a model that has none, and with one that scores", async (t) => {
    for (const pooling of [null, "rank"] as const) {
      const { embed } = await server(t, { capabilities: { pooling } });
      const error = await errorOf(embed(["a"]).embedded);
      assert.equal(error.code, "unsupported");
    }
  });

  it("returns what the engine pools, together with text, and again after its reader disconnected", async (t) => {
    const { embed, start, engine, loop } = await server(t, { maxSequences: 2 });
    const inputs = Array.from({ length: 7 }, (_, i) => "word ".repeat(i + 1));
    const left = embed(inputs);
    left.cancel();
    const [{ vectors, promptTokens }, text] = await Promise.all([
      embed(inputs).embedded,
      readAll(start()),
      assert.rejects(left.embedded, { code: "cancelled" }),
    ]);
    assert.equal(vectors.length, 7);
    assert.ok(promptTokens > 7);
    assert.ok(vectors.every((vector) => vector.length === 1 && Math.abs(vector[0]!) === 1));
    assert.equal(text.at(-1)?.type, "done");
    await crossed();
    assert.equal(loop.snapshot().running + loop.snapshot().waiting, 0);
    assert.equal(engine.cache.size, 0);
  });

  it("rejects the requests beyond slots plus queue, and accepts others when these have ended", async (t) => {
    const made = await createServer({ engine: { maxSequences: 2 }, limits: { maxQueue: 1 } });
    t.after(made.close);
    const all = Array.from({ length: 5 }, () => made.embed(["a"]).embedded);
    const codes = await Promise.all(
      all.map((embedded) =>
        embedded.then(
          () => null,
          (error) => toErrorRecord(error).code,
        ),
      ),
    );
    assert.deepEqual(codes, [null, null, null, "queue_full", "queue_full"]);
    assert.equal((await made.embed(["a"]).embedded).vectors.length, 1);
  });

  it("returns an error for a model that does not exist", async (t) => {
    const { embed } = await server(t, {});
    assert.equal((await errorOf(embed(["a"], "other").embedded)).code, "model_loading");
  });
});
