// Overload as clients see it: rejections and their errors, and the duration and order of waits in the queue. Tested on the
// real command with the generated model. The tests check orders and counts, not times.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

type Body = OpenAI.ChatCompletionCreateParamsNonStreaming & { ignore_eos: boolean };

const clientOf = ({ url }: RunningServer, apiKey = "any") =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 300_000 });

const bodyOf = (maxTokens: number): Body => ({
  model: "default",
  messages: [{ role: "user", content: "hi" }],
  max_tokens: maxTokens,
  ignore_eos: true,
});

/** Number of tokens whose generation takes far longer than any of these tests. */
const endless = 15_000;

async function start(...flags: string[]): Promise<RunningServer> {
  const common = ["--threads", "1", "--max-model-len", "16384", "--shutdown-deadline-secs", "0"];
  return startServer(["-m", await tinyModel(), ...common, ...flags]);
}

/** Starts a request that runs until it is aborted. Waits for its first token. */
async function occupySlot(client: OpenAI): Promise<AbortController> {
  const stream = await client.chat.completions.create({ ...bodyOf(endless), stream: true });
  await stream[Symbol.asyncIterator]().next();
  return stream.controller;
}

/** Returns the error with which a request is rejected. */
async function refusalOf(answer: Promise<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> {
  try {
    await answer;
  } catch (error) {
    assert.ok(error instanceof OpenAI.APIError, String(error));
    return error;
  }
  return assert.fail("the request was answered");
}

function assertRefusal(error: InstanceType<typeof OpenAI.APIError>, status: number, code: string): void {
  assert.deepEqual([error.status, error.code], [status, code], error.message);
  assert.equal(error.type, status === 429 ? "rate_limit_error" : "server_error");
  assert.match(error.headers?.get("retry-after") ?? "", /^[1-9]\d*$/);
}

/** Repeats a request until the server does not reject it immediately, which means that the request waits in the queue. */
async function queueUp(client: OpenAI, signal?: AbortSignal): Promise<{ answer: Promise<OpenAI.ChatCompletion> }> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const answer = client.chat.completions.create(bodyOf(5), { signal });
    const refusal = await Promise.race([
      answer.then(
        () => null,
        (error: Error) => error,
      ),
      sleep(300),
    ]);
    if (!refusal) return { answer };
    assertRefusal(refusal as InstanceType<typeof OpenAI.APIError>, 429, "queue_full");
  }
  return assert.fail("it was refused a hundred times");
}

describe("a queue that is full", () => {
  const slots = 2;
  const queue = 5;
  const overflow = 6;
  let server: RunningServer;
  before(async () => {
    server = await start("--max-seqs", String(slots), "--max-queue", String(queue));
  });
  after(() => server.stop());

  it("rejects exactly the excess requests with 429 and Retry-After before any other ends, and answers the rest", async () => {
    const ends: string[] = [];
    const answers = Array.from({ length: slots + queue + overflow }, async () => {
      const answer = clientOf(server).chat.completions.create(bodyOf(1000));
      try {
        assert.equal((await answer).usage?.completion_tokens, 1000);
        ends.push("answered");
      } catch (error) {
        assert.ok(error instanceof OpenAI.RateLimitError, String(error));
        assertRefusal(error, 429, "queue_full");
        assert.match(error.message, /max_queue 5/);
        ends.push("refused");
      }
    });
    await Promise.all(answers);
    assert.deepEqual(ends, [...Array(overflow).fill("refused"), ...Array(slots + queue).fill("answered")]);
  });

  it("rejects a request for several choices as a whole, and reserves no place for it", async () => {
    const client = clientOf(server);
    const running = await Promise.all([occupySlot(client), occupySlot(client)]);
    assertRefusal(await refusalOf(client.chat.completions.create({ ...bodyOf(5), n: queue + 1 })), 429, "queue_full");
    const waiting = client.chat.completions.create({ ...bodyOf(5), n: queue });
    const refusal = await Promise.race([
      waiting.then(
        () => null,
        (error: Error) => error,
      ),
      sleep(300),
    ]);
    assert.ok(!refusal, refusal?.message);
    for (const stream of running) stream.abort();
    assert.equal((await waiting).choices.length, queue);
  });
});

describe("a client that hangs up while it waits", () => {
  let server: RunningServer;
  before(async () => {
    server = await start("--max-seqs", "1", "--max-queue", "2");
  });
  after(() => server.stop());

  it("leaves its place in the queue to another one", async () => {
    const client = clientOf(server);
    const running = await occupySlot(client);
    const leaves = new AbortController();
    const first = await queueUp(client);
    const second = await queueUp(client, leaves.signal);
    assertRefusal(await refusalOf(client.chat.completions.create(bodyOf(5))), 429, "queue_full");
    leaves.abort();
    await assert.rejects(second.answer, OpenAI.APIUserAbortError);
    const third = await queueUp(client);
    assertRefusal(await refusalOf(client.chat.completions.create(bodyOf(5))), 429, "queue_full");
    running.abort();
    for (const { answer } of [first, third]) assert.equal((await answer).usage?.completion_tokens, 5);
  });
});

describe("a queue with a time limit", () => {
  let server: RunningServer;
  before(async () => {
    server = await start("--max-seqs", "1", "--max-queue", "1", "--queue-timeout-secs", "1");
  });
  after(() => server.stop());

  it("rejects a request that waits too long with 503 and Retry-After, and no other", async () => {
    const client = clientOf(server);
    let tokens = 0;
    const stream = await client.chat.completions.create({ ...bodyOf(endless), stream: true });
    const running = (async () => {
      for await (const _ of stream) tokens++;
    })();
    while (tokens === 0) await sleep(5);
    // The queue holds one request. A second request can wait only if the queue entry of the first one has been freed.
    for (let turn = 0; turn < 2; turn++) {
      const refusal = await refusalOf(client.chat.completions.create(bodyOf(5)));
      assertRefusal(refusal, 503, "queue_timeout");
      assert.match(refusal.message, /queue_timeout_secs/);
    }
    const before = tokens;
    while (tokens === before) await sleep(5);
    stream.controller.abort();
    await running;
    assert.equal((await (await queueUp(client)).answer).usage?.completion_tokens, 5);
  });
});

describe("clients that share one slot", () => {
  const backlog = 10;
  let server: RunningServer;
  before(async () => {
    server = await start("--max-seqs", "1");
  });
  after(() => server.stop());

  it("take turns: one request does not wait for another client's backlog, but for its own client's", async () => {
    const busy = clientOf(server, "the key of the busy client");
    const running = await occupySlot(busy);
    const ends: string[] = [];
    const ask = async (name: string, client: OpenAI) => {
      await client.chat.completions.create(bodyOf(50));
      ends.push(name);
    };
    const answers = Array.from({ length: backlog }, () => ask("backlog", busy));
    await sleep(300);
    answers.push(ask("busy client's last", busy));
    await sleep(300);
    answers.push(ask("other client's", clientOf(server, "the key of another client")));
    await sleep(300);
    running.abort();
    await Promise.all(answers);
    // The busy client has just had its turn, so the other client's turn comes at most one request later.
    assert.ok(ends.indexOf("other client's") <= 1, `it came after ${ends.indexOf("other client's")} of the backlog`);
    assert.equal(ends.at(-1), "busy client's last");
  });
});
