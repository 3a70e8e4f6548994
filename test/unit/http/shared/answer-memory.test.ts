// Memory for responses: it is limited, in total and per client, and is freed when responses have been sent.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createApp } from "../../../../http/app.ts";
import { AnswerMemory } from "../../../../http/shared/answer/answer-memory.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { done, FakeInference, failure, finish, type Step, text } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const isFull = (error: unknown): boolean => error instanceof ServerError && error.code === "queue_full";

describe("the memory of answers", () => {
  it("is limited in total, and to half of it per client", () => {
    const memory = new AnswerMemory(100);
    const [a, b, c] = ["a", "b", "c"].map((client) => memory.lease(client));
    a!.add(30);
    memory.lease("a").add(20);
    assert.throws(() => a!.add(1), isFull);
    b!.add(40);
    assert.throws(() => c!.add(11), isFull);
    assert.equal(memory.bytes, 90);
    a!.release();
    c!.add(40);
    assert.equal(memory.bytes, 100);
  });

  it("is freed by the last user of an answer", () => {
    const memory = new AnswerMemory(100);
    const lease = memory.lease("a");
    lease.add(50);
    lease.retain();
    lease.release();
    assert.equal(memory.bytes, 50);
    lease.release();
    assert.equal(memory.bytes, 0);
    memory.lease("a").add(50);
  });
});

const x = { token: "x", bytes: [120], logprob: -1 };
/** Text event with 396 bytes of logprob records. */
const bulk = text("x", 0, [{ ...x, top: new Array(48).fill(x) }]);
const paths = {
  "/v1/chat/completions": { messages: "hi", logprobs: true },
  "/v1/completions": { prompt: "hi", logprobs: 1 },
  "/v1/responses": { input: "hi" },
} as const;

function rig(steps: readonly Step[]) {
  const inference = new FakeInference(() => steps);
  const app = createApp({ inference, log: recordingLog(), config: { accessLog: false }, maxAnswerBytes: 2000 });
  return { inference, app };
}

describe("an answer above the memory limit", () => {
  for (const [path, body] of Object.entries(paths)) {
    it(`is refused at ${path}, which ends only its generation`, async () => {
      const { inference, app } = rig([[bulk], [bulk], [bulk], { waitMs: 60_000 }, [finish(), done]]);
      const reply = await request(app, "POST", path, { body });
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.code], [429, "queue_full"]);
      assert.match(error.message, /one client may hold 1000 bytes of logprobs.*stream it/);
      assert.equal(inference.lastRun.state, "ended");
      assert.equal(inference.lastRun.batchCount, 3);
      inference.script = () => [[bulk], [finish(), done]];
      for (let i = 0; i < 5; i++) {
        assert.equal((await request(app, "POST", path, { body })).status, 200);
        // The memory stays reserved until the response has been stored.
        await app.settled();
      }
    });
  }

  it("is freed if one of several prompts fails while another one is still read", async () => {
    const { inference, app } = rig([]);
    const batches: readonly Step[] = [[bulk], [bulk], [bulk]];
    inference.script = ({ prompt }) =>
      prompt.kind === "text" && prompt.text === "fails" ? [[failure("timeout")]] : batches;
    for (let i = 0; i < 5; i++) {
      const body = { prompt: ["fails", "goes on"], logprobs: 1 };
      assert.equal((await request(app, "POST", "/v1/completions", { body })).status, 503);
    }
    inference.script = () => [[bulk], [bulk], [finish(), done]];
    assert.equal((await request(app, "POST", "/v1/completions", { body: paths["/v1/completions"] })).status, 200);
  });

  it("ends the stream of a response, which holds them, but no other stream", async () => {
    const { app } = rig([[bulk], [bulk], [bulk], [finish(), done]]);
    const response = await request(app, "POST", "/v1/responses", { body: { input: "hi", stream: true } });
    assert.match(response.body, /event: response\.failed\ndata: .*"code":"queue_full"/);
    const chat = { messages: "hi", logprobs: true, stream: true };
    const stream = await request(app, "POST", "/v1/chat/completions", { body: chat });
    assert.match(stream.body, /"finish_reason":"stop"/);
  });

  it("fails in the background, as its retrieval shows", async () => {
    const { app } = rig([[bulk], [bulk], [bulk], [finish(), done]]);
    const { body } = await request(app, "POST", "/v1/responses", { body: { input: "hi", background: true } });
    const path = `/v1/responses/${JSON.parse(body).id}`;
    let found = { status: "", error: { code: "" } };
    for (let i = 0; i < 200 && found.status !== "failed"; i++) {
      await sleep(2);
      found = JSON.parse((await request(app, "GET", path)).body);
    }
    assert.deepEqual([found.status, found.error.code], ["failed", "queue_full"]);
  });

  it("is refused for embeddings", async () => {
    const { inference, app } = rig([]);
    inference.embedder = async () => ({ vectors: [new Float32Array(300)], promptTokens: 1 });
    const reply = await request(app, "POST", "/v1/embeddings", { body: { input: "a" } });
    assert.deepEqual([reply.status, JSON.parse(reply.body).error.code], [429, "queue_full"]);
    inference.embedder = async () => ({ vectors: [new Float32Array(200)], promptTokens: 1 });
    for (let i = 0; i < 3; i++) {
      assert.equal((await request(app, "POST", "/v1/embeddings", { body: { input: "a" } })).status, 200);
    }
  });

  it("leaves room for other clients", async () => {
    const { inference, app } = rig([[bulk], [bulk], { waitMs: 60_000 }]);
    const leaving = new AbortController();
    const ask = (address: string, signal?: AbortSignal) =>
      request(app, "POST", "/v1/chat/completions", {
        body: paths["/v1/chat/completions"],
        address,
        ...(signal && { signal }),
      });
    void ask("10.0.0.1", leaving.signal);
    await sleep(5);
    inference.script = () => [[bulk], [finish(), done]];
    assert.equal((await ask("10.0.0.1")).status, 429);
    assert.equal((await ask("10.0.0.2")).status, 200);
    leaving.abort();
    await sleep(5);
    assert.equal((await ask("10.0.0.1")).status, 200);
  });
});
