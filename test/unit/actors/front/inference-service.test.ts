import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InferenceService, type ServedModel, type ServiceOptions } from "../../../../actors/front/inference-service.ts";
import { RejectionCounter } from "../../../../actors/models/rejection-counter.ts";
import type { GenerateRequest } from "../../../../engines/generation.ts";
import { builtInDefaults } from "../../../../engines/sampling-defaults.ts";
import { createApp } from "../../../../http/app.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { FakeClock } from "../../../fixtures/fakes/fake-clock.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { textTasks } from "../generation/rig.ts";

function served(id: string): ServedModel {
  return {
    id,
    engine: "llama",
    spec: {} as never,
    chatTemplate: null,
    jinjaExplicit: null,
    kind: "thread",
    defaults: builtInDefaults,
    adapters: null,
    ownAdapter: null,
  };
}

/** Returns an inference service that has not been started, so its model is not loaded. */
function createFront(changes: Partial<ServiceOptions> = {}): InferenceService {
  return new InferenceService({
    models: [served("tiny")],
    defaultModelId: "tiny",
    defaultSeed: null,
    limits: generousLimits,
    frameIntervalMs: 0,
    adapterFolder: "",
    adapterRoot: null,
    maxLoadedModels: null,
    idleUnloadMs: 0,
    speculation: { promptLookup: false, maxDraftTokens: 0, draftModel: null, mtpTokens: null, mtpSampling: "auto" },
    prefixStore: null,
    speechLimits: { maxInputChars: 100, maxSpeechSeconds: 1, maxAudioBytes: 1000, maxAudioSeconds: 1, maxQueue: 1 },
    generationPlace: { mailboxLimit: 64, streamWindow: 64, textTasks },
    restart: { kind: "stop", minBackoffMs: 0, maxBackoffMs: 0, resetAfterMs: 0, maxRestarts: 0 },
    loadTimeoutMs: 1000,
    log: createLogger({ level: "silent", format: "json" }),
    onLoadProgress: () => {},
    ...changes,
  });
}

describe("a front whose model is being loaded", () => {
  it("responds with 503 and Retry-After on every endpoint, streamed or not", async () => {
    const app = createApp({ inference: createFront(), log: recordingLog() });
    for (const [path, body] of [
      ["/v1/chat/completions", { messages: "hi" }],
      ["/v1/chat/completions", { messages: "hi", stream: true }],
      ["/v1/completions", { prompt: "hi" }],
      ["/v1/embeddings", { input: "hi" }],
    ] as const) {
      const reply = await request(app, "POST", path, { body });
      assert.deepEqual([reply.status, reply.headers["retry-after"]], [503, "2"]);
      assert.equal(JSON.parse(reply.body).error.code, "model_loading");
    }
  });

  it("says that the thread of all texts is not running, until it stops", async () => {
    const front = createFront();
    assert.deepEqual(front.faults(), ["the thread that handles the texts of all models is not running"]);
    await front.stop(0);
    assert.deepEqual(front.faults(), []);
  });

  it("has no statistics", async () => {
    await assert.rejects(createFront().statistics("tiny"), { code: "model_state_conflict" });
    await assert.rejects(createFront().statistics("other"), { code: "model_not_found" });
  });
});

describe("a front that counts the tokens of a request", () => {
  it("lets it wait for its model no longer than its client does", async () => {
    const models = [served("tiny"), served("later")];
    const limits = { ...generousLimits, maxQueue: 1 };
    const modelModule = new URL("data:text/javascript,export const start = () => new Promise(() => {});");
    const front = createFront({ models, limits, modelModule, maxLoadedModels: 1 });
    const count = (signal: AbortSignal) => front.countTokens({ model: "later" } as GenerateRequest, signal);
    for (let i = 0; i < 3; i++) {
      const client = new AbortController();
      const counted = assert.rejects(count(client.signal), { code: "cancelled" });
      await assert.rejects(count(client.signal), { code: "queue_full" });
      client.abort();
      await counted;
    }
    await front.stop(0);
  });
});

describe("a front that gets images", () => {
  it("refuses more than the model takes before it loads them", async () => {
    const spec = { images: { maxImages: 2 } } as never;
    let loads = 0;
    const readFile = async () => {
      loads++;
      return new Uint8Array(1);
    };
    const front = createFront({ models: [{ ...served("tiny"), spec }], readFile });
    const media = ["a", "b", "c"].map((id) => ({ key: id, param: `at ${id}`, source: { kind: "file", id } as const }));
    const counted = front.countTokens({ model: "tiny", media } as unknown as GenerateRequest, AbortSignal.abort());
    const expected = {
      code: "invalid_value",
      param: "at a",
      message: /has 3 images or videos; .* at most 2 \(max_num_images\)/,
    };
    await assert.rejects(counted, expected);
    assert.equal(loads, 0);
  });
});

describe("the log of refusals", () => {
  it("has one line for many refusals, and one every few seconds while they continue", async () => {
    const clock = new FakeClock();
    const log = recordingLog();
    const refusals = new RejectionCounter("tiny", log, clock);
    const refuse = (count: number) => {
      for (let i = 0; i < count; i++) refusals.note("queue_full");
    };
    refuse(404);
    refusals.note("model_failed");
    await clock.advance(1000);
    for (let second = 0; second < 8; second++) {
      refuse(10);
      await clock.advance(1000);
    }
    refusals.note("queue_timeout");
    await clock.advance(60_000);
    assert.deepEqual(
      log.lines.map(({ fields }) => fields.refused),
      [404, 50, 31],
    );
    assert.deepEqual(log.lines.at(-1)?.fields, { model: "tiny", refused: 31, queueFull: 484, queueTimeouts: 1 });
    assert.equal(log.lines[0]?.level, "warn");
    assert.equal(clock.pendingCount, 0);
  });

  it("has all lines when the server stops", () => {
    const clock = new FakeClock();
    const log = recordingLog();
    const refusals = new RejectionCounter("tiny", log, clock);
    refusals.note("queue_full");
    refusals.flush();
    assert.equal(log.lines.length, 1);
    assert.equal(clock.pendingCount, 0);
  });
});
