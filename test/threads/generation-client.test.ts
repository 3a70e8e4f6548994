// Generation client with real threads: what happens to the models when the generation thread or a model's worker exits.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it, type TestContext } from "node:test";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import type { ModelFileFacts } from "../../actors/api/inference.ts";
import { GenerationClient } from "../../actors/front/generation-client.ts";
import { type ModelPlaceReady, tokenChannel } from "../../actors/messages.ts";
import type { ServedModel } from "../../actors/models/served-model.ts";
import { greedySampling, requestDefaults } from "../../engines/generation.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { PortEndpoint } from "../../runtime/endpoint/port-endpoint.ts";
import type { Place } from "../../runtime/thread/place.ts";
import { createFakeEngine } from "../fixtures/fakes/fake-engine.ts";
import { recordingLog } from "../fixtures/http-server.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";

/** A model whose worker is the test: it answers nothing, but may be attached. */
function createModel(id: string, folder: string, ports: MessagePort[]) {
  const { card, capacity, capabilities } = createFakeEngine({ sequenceTokens: 512 });
  const ready: ModelPlaceReady = {
    card: { ...card, vocabSize: 512 },
    capacity,
    capabilities,
    maxQueue: 8,
    probes: null,
  };
  const served = {
    id,
    spec: { path: join(folder, `${id}.gguf`) },
    chatTemplate: null,
    jinjaExplicit: null,
  } as ServedModel;
  const facts: ModelFileFacts[] = [];
  const createPlace = () => {
    const dial = async () => {
      const { port1, port2 } = new MessageChannel();
      ports.push(port2);
      return { place: id, kind: "thread", port: port1 } as const;
    };
    return { ready, dial, exit: new Promise(() => {}) } as unknown as Place<ModelPlaceReady>;
  };
  const setFileFacts = (read: ModelFileFacts) => void facts.push(read);
  return { served, place: createPlace(), createPlace, facts, setFileFacts };
}

async function createFront(t: TestContext, ids: readonly string[]) {
  const folder = mkdtempSync(join(tmpdir(), "agents-front-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const ports: MessagePort[] = [];
  const models = ids.map((id) => createModel(id, folder, ports));
  for (const { served } of models) await writeTinyModel(served.spec.path, { seed: 1, layers: 1 });
  const front = new GenerationClient({
    init: {
      mailboxLimit: 64,
      streamWindow: 64,
      textTasks: {
        translators: new URL("../../http/shared/body-translators.js", import.meta.url).href,
        quickWorkers: 1,
        slowWorkers: 2,
        maxQueued: 10,
        limitSeconds: 10,
        heapMiB: 512,
      },
    },
    system: new ActorSystem("front"),
    clock: realClock,
    // `maxRestarts` does not apply to the generation thread: it is restarted although no restarts are allowed.
    restart: { kind: "restart", minBackoffMs: 10, maxBackoffMs: 50, resetAfterMs: 60_000, maxRestarts: 0 },
    loadTimeoutMs: 30_000,
    log: recordingLog() as never,
    models: () => models,
  });
  t.after(async () => {
    await front.stop(2000);
    for (const port of ports) port.close();
  });

  const count = (model: string) => {
    const request = { ...requestDefaults, model, client: "a", sampling: greedySampling };
    const asked = { ...request, prompt: { kind: "text", text: "hello" } } as const;
    return front.link?.actor.ask("countTokens", { task: 1, request: asked }) ?? Promise.reject(new Error("not up"));
  };
  return { front, models, ports, count };
}

it("serves every model again when the generation place has ended, even if a model's file was removed", async (t) => {
  const { front, models, ports, count } = await createFront(t, ["kept", "gone"]);
  await front.start();
  const before = await Promise.all(["kept", "gone"].map(count));
  rmSync(models[1]?.served.spec.path ?? "");

  for (let round = 0; round < 3; round++) {
    const { link } = front;
    // This invalid message makes the whole generation thread exit. No model thread ever sends null.
    for (const port of ports.splice(0)) new PortEndpoint(port, { peer: "generation" }).send(tokenChannel, null);
    while (front.link === link || front.link === null) await new Promise((resolve) => setTimeout(resolve, 10));
    const limit = Date.now() + 20_000;
    for (;;) {
      const counts = await Promise.all(["kept", "gone"].map((model) => count(model).catch(() => null)));
      if (counts.every((tokens, i) => tokens === before[i])) break;
      assert.ok(Date.now() < limit, `round ${round}: ${counts.join()}`);
    }
  }
});

it("tells what is in a model's file, even if the model came up before the generation place", async (t) => {
  const { front, models } = await createFront(t, ["early"]);
  const [model = assert.fail()] = models;
  assert.equal(await front.attach(model.served, model.place), null);
  await front.start();
  assert.deepEqual(
    model.facts.map(({ architecture }) => architecture),
    ["llama"],
  );
});

it("keeps a model attached when a former worker of it ends", async (t) => {
  const { front, models, count } = await createFront(t, ["tiny"]);
  const [model = assert.fail()] = models;
  await front.start();
  const [former, current] = [model.place, model.createPlace()];
  await front.attach(model.served, current);
  const error = { code: "model_loading", message: "it has ended" } as const;
  front.detach("tiny", former, error);
  assert.ok((await count("tiny")) > 0);
  assert.equal(front.isAttached("tiny"), true);
  front.detach("tiny", current, error);
  await assert.rejects(count("tiny"), error);
  assert.equal(front.isAttached("tiny"), false);
});
