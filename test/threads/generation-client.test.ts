// Generation client with real threads: what happens to the models when the generation thread exits.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { MessageChannel, type MessagePort } from "node:worker_threads";
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

it("serves every model again when the generation place has ended, even if a model's file was removed", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "agents-front-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const { capacity, capabilities } = createFakeEngine({ sequenceTokens: 512 });
  const ports: MessagePort[] = [];
  const models = ["kept", "gone"].map((id) => {
    const dial = async () => {
      const { port1, port2 } = new MessageChannel();
      ports.push(port2);
      return { place: id, kind: "thread", port: port1 } as const;
    };
    const card = { ...createFakeEngine().card, vocabSize: 512 };
    const ready: ModelPlaceReady = { card, capacity, capabilities, maxQueue: 8, probes: null };
    const served = { id, spec: { path: join(folder, `${id}.gguf`) }, chatTemplate: null, jinjaExplicit: null };
    return {
      served: served as ServedModel,
      place: { ready, dial, exit: new Promise(() => {}) } as unknown as Place<ModelPlaceReady>,
    };
  });
  for (const { served } of models) await writeTinyModel(served.spec.path, { seed: 1, layers: 1 });

  const log = recordingLog();
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
    log: log as never,
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
