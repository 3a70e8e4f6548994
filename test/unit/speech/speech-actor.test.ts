// Interrupted speech calls: a call of a speech model that ends before its last event always ends with an error, and leaves no
// thread running.
import assert from "node:assert/strict";
import { after, afterEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import type { SpeakEvent } from "../../../actors/api/speech/speech.ts";
import { speechChannel, speechWindow } from "../../../actors/messages.ts";
import { SpeechActor } from "../../../actors/speech/speech-actor.ts";
import type { AudioFormat } from "../../../engines/speech/audio/encoder.ts";
import type { Phrase, SpeakingModel } from "../../../engines/speech/speech.ts";
import { StreamHub } from "../../../runtime/actor/stream.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { portPair } from "../../fixtures/actors/endpoint-pair.ts";

const sampleRate = 22_050;
const limits = { maxInputChars: 1000, maxSpeechSeconds: 3, maxAudioBytes: 1000, maxAudioSeconds: 10, maxQueue: 4 };

/** Worker threads that are currently running. */
const workers = new Set<Worker>();
const started = (worker: Worker): void => {
  workers.add(worker);
  worker.once("exit", () => workers.delete(worker));
};
process.on("worker", started);
after(async () => {
  process.off("worker", started);
  for (const worker of workers) await worker.terminate();
});

/** Returns a model that speaks the first sentence itself; `second` speaks the next ones. */
function modelWith(second: (phrase: Phrase) => Promise<Float32Array>): SpeakingModel {
  let spoken = 0;
  return {
    card: {
      engine: "piper",
      task: "speak",
      backend: "scripted",
      weightBytes: 0,
      sampleRate,
      voices: [{ id: "one", language: "en" }],
      languages: [],
    },
    speak: async (phrase) => (spoken++ === 0 ? new Float32Array(sampleRate) : await second(phrase)),
    dispose: async () => {},
  };
}

const untilAborted = ({ signal }: Phrase): Promise<never> =>
  new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new ServerError("cancelled", "the model was interrupted")));
  });

function callOf(model: SpeakingModel, format: AudioFormat) {
  const { left, right } = portPair();
  const actor = new SpeechActor({ task: "speak", model }, limits, left);
  const reader = new StreamHub(right, { channel: speechChannel, window: speechWindow }).reader<SpeakEvent>(1);
  const request = { model: "m", client: "c", input: "One. Two.", voice: null, speed: 1, format };
  actor.speak({ stream: 1, request }, { sender: left });
  const events: SpeakEvent[] = [];
  let audioCame = (): void => {};
  const hasAudio = new Promise<void>((resolve) => {
    audioCame = resolve;
  });
  const ended = (async () => {
    for await (const batch of reader) {
      events.push(...batch);
      if (batch.some(({ type }) => type === "audio")) audioCame();
    }
    left.close();
    right.close();
  })();
  const last = async (): Promise<string> => {
    await ended;
    const event = events.at(-1);
    return event?.type === "error" ? event.error.code : String(event?.type);
  };
  return { actor, reader, hasAudio, last };
}

async function noWorkers(): Promise<void> {
  for (let attempt = 0; workers.size > 0 && attempt < 100; attempt++) await sleep(20);
  assert.equal(workers.size, 0, "threads are left over");
}

describe("a call of a model that speaks", () => {
  let stop: () => Promise<void> = async () => {};
  afterEach(() => stop());

  for (const format of ["mp3", "flac", "aac", "opus", "wav"] as const) {
    it(`ends with the model's error in the second sentence, as ${format}`, async () => {
      const call = callOf(
        modelWith(() => Promise.reject(new ServerError("model_failed", "broken"))),
        format,
      );
      stop = () => call.actor.stop();
      assert.equal(await call.last(), "model_failed");
      await noWorkers();
    });
  }

  it("ends with an error when the audio becomes too long", async () => {
    const call = callOf(
      modelWith(async () => new Float32Array(4 * sampleRate)),
      "mp3",
    );
    stop = () => call.actor.stop();
    assert.equal(await call.last(), "invalid_value");
    await noWorkers();
  });

  it("leaves no thread when its reader cancels", async () => {
    const call = callOf(modelWith(untilAborted), "mp3");
    stop = () => call.actor.stop();
    await call.hasAudio;
    assert.ok(workers.size > 0);
    call.reader.cancel();
    await call.last();
    await noWorkers();
  });

  it("ends with `draining` when the model is stopped", async () => {
    const call = callOf(modelWith(untilAborted), "mp3");
    await call.hasAudio;
    await call.actor.stop();
    assert.equal(await call.last(), "draining");
    await noWorkers();
  });
});

describe("the queue of a model that speaks", () => {
  it("has room again when waiting requests are cancelled", async () => {
    const { left, right } = portPair();
    const model = { ...modelWith(untilAborted), speak: untilAborted };
    const actor = new SpeechActor({ task: "speak", model }, { ...limits, maxQueue: 1 }, left);
    const hub = new StreamHub(right, { channel: speechChannel, window: speechWindow });
    let streams = 0;
    const call = () => {
      const stream = ++streams;
      const reader = hub.reader<SpeakEvent>(stream);
      const request = { model: "m", client: "c", input: "One.", voice: null, speed: 1, format: "wav" } as const;
      actor.speak({ stream, request }, { sender: left });
      const last = (async () => {
        let type = "";
        for await (const batch of reader)
          for (const event of batch) type = event.type === "error" ? event.error.code : type;
        return type;
      })().catch(() => "the actor is gone");
      return { cancel: () => reader.cancel(), last };
    };
    for (let i = 0; i < 4; i++) call();
    const waiting = call();
    const refused = await call().last;
    waiting.cancel();
    let outcome = refused;
    for (let i = 0; i < 50 && outcome === "queue_full"; i++)
      outcome = await Promise.race([call().last, sleep(300, "it waits")]);
    await actor.stop();
    left.close();
    right.close();
    assert.deepEqual([refused, outcome], ["queue_full", "it waits"]);
  });
});
