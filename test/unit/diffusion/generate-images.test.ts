// Image generation: order of its events, cancellation between two steps, time limit.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ImageGenerationEvent, ImageGenerationRequest } from "../../../actors/api/images/image-generation.ts";
import { DiffusionActor } from "../../../actors/diffusion/diffusion-actor.ts";
import { generateImages } from "../../../actors/diffusion/generate-images.ts";
import { diffusionChannel, diffusionWindow } from "../../../actors/messages.ts";
import type { DiffusionModel, ImageInProgress } from "../../../engines/diffusion/diffusion.ts";
import { StreamHub } from "../../../runtime/actor/stream.ts";
import { portPair } from "../../fixtures/actors/endpoint-pair.ts";

const steps = 8;
const image: ImageGenerationRequest["image"] = {
  prompt: "a",
  negativePrompt: null,
  width: null,
  height: null,
  steps,
  guidance: null,
  scheduler: null,
  seed: 5,
  truncatesPrompt: false,
};
const request: ImageGenerationRequest = { model: "m", client: "c", count: 2, partials: 3, image };

/** Returns a model that only counts steps. `onStep` is called with the number of steps so far, over all images. */
function countingModel(onStep: (total: number) => void = () => {}) {
  const seeds: number[] = [];
  let total = 0;
  const begin = async ({ seed }: { readonly seed: number }): Promise<ImageInProgress> => {
    seeds.push(seed);
    let done = 0;
    return {
      width: 1,
      height: 1,
      promptTokens: 3,
      evaluations: steps,
      get done() {
        return done;
      },
      async advance() {
        done++;
        onStep(++total);
      },
      pixels: async () => ({ width: 1, height: 1, data: new Uint8Array(3) }),
    };
  };
  const model = { begin } as unknown as DiffusionModel;
  return { model, seeds, total: () => total };
}

async function generated(model: DiffusionModel, signal = new AbortController().signal, limitMs = 60_000) {
  const events: ImageGenerationEvent[] = [];
  const send = async (event: ImageGenerationEvent) => {
    events.push(event);
  };
  const error = await generateImages(model, request, { limitMs, signal, send }).then(
    () => null,
    (thrown: { readonly code: string; readonly message: string }) => thrown,
  );
  return { events, error };
}

describe("image generation", () => {
  it("sends each step, the unfinished images at equal distances, and each image with its seed", async () => {
    const { model, seeds } = countingModel();
    const { events, error } = await generated(model);
    assert.equal(error, null);
    const first = events.filter((event) => "imageIndex" in event && event.imageIndex === 0).map(({ type }) => type);
    const [step, partial] = ["step", "partial"];
    const halves = [step, step, partial, step, step, partial, step, step, partial, step, step];
    assert.deepEqual(first, ["begin", ...halves, "image"]);
    assert.equal(events.at(-1)?.type, "done");
    assert.deepEqual(seeds, [5, 6]);
  });

  it("ends before the next step when its client has gone", async () => {
    const gone = new AbortController();
    const { model, total } = countingModel((count) => {
      if (count === 3) gone.abort();
    });
    const { error } = await generated(model, gone.signal);
    assert.equal(error?.code, "cancelled");
    assert.equal(total(), 3);
  });

  it("ends between two steps at its time limit, and says how far it has come", async () => {
    const { model } = countingModel((count) => {
      const until = performance.now() + (count === 2 ? 30 : 0);
      while (performance.now() < until);
    });
    const { error } = await generated(model, undefined, 20);
    assert.equal(error?.code, "timeout");
    assert.match(error?.message ?? "", /longer than 0.02 s \(timeout_secs of \[diffusion\]\), with 2 of 8 steps done/);
  });
});

describe("the queue of a model that makes images", () => {
  /** Returns the call of a model whose images never become ready. */
  function queueOf(maxQueue: number) {
    const { left, right } = portPair();
    const begin = (): Promise<never> => new Promise(() => {});
    const model = { begin } as unknown as DiffusionModel;
    const actor = new DiffusionActor(model, { timeoutMs: 60_000, maxQueue }, left);
    const hub = new StreamHub(right, { channel: diffusionChannel, window: diffusionWindow });
    let streams = 0;
    const call = () => {
      const stream = ++streams;
      const reader = hub.reader<ImageGenerationEvent>(stream);
      actor.generate({ stream, request }, { sender: left });
      const last = (async () => {
        let error = "";
        for await (const batch of reader) {
          for (const event of batch) if (event.type === "error") error = event.error.code;
        }
        return error;
      })().catch(() => "the actor is gone");
      return { cancel: () => reader.cancel(), last };
    };
    const close = (): void => {
      left.close();
      right.close();
    };
    return { actor, call, close };
  }

  it("has room again when a waiting request is cancelled", async () => {
    const { call, close } = queueOf(1);
    call();
    const waiting = call();
    const refused = await call().last;
    waiting.cancel();
    let outcome = refused;
    for (let i = 0; i < 50 && outcome === "queue_full"; i++)
      outcome = await Promise.race([call().last, sleep(300, "it waits")]);
    close();
    assert.deepEqual([refused, outcome], ["queue_full", "it waits"]);
  });

  it("tells the waiting requests that the model is being stopped", async () => {
    const { actor, call, close } = queueOf(1);
    call();
    const waiting = call();
    void actor.stop();
    const outcome = await waiting.last;
    close();
    assert.equal(outcome, "draining");
  });
});
