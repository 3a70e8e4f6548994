// Model worker: the entry module of a model's child process or thread. It loads the model, then runs the step loop. An engine
// failure ends the worker on purpose, and its supervisor starts a new one.

import { createGrammarHost } from "../../engines/decoding/grammar/host.ts";
import { modelFingerprint } from "../../engines/decoding/prefix-store/fingerprint.ts";
import { PrefixStore } from "../../engines/decoding/prefix-store/prefix-store.ts";
import { Speculation } from "../../engines/decoding/speculation/speculation.ts";
import type { AudioSpec, ImageSpec, LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { readAudioProjectorFile } from "../../engines/files/projector/audio-projector.ts";
import { readProjectorFile } from "../../engines/files/projector/image-projector.ts";
import { startImageThread } from "../../engines/image-input/image-thread.ts";
import { ModelMedia } from "../../engines/media/model-media.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { vocabularyProbes } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceInit, ModelPlaceReady, ModelProtocol, ModelReport } from "../messages.ts";
import { loadDraftModel } from "./draft-model.ts";
import { modelActor } from "./model-actor.ts";
import { checkKind } from "./model-kind.ts";
import { RequestPreparation } from "./request-preparation.ts";
import { StepLoop } from "./step/step-loop.ts";

/** Minimum length in tokens of a prefix that is stored on disk. A shorter prefix is computed faster than it is read. Chosen by hand. */
const leastStoredTokens = 256;

export async function start(place: PlaceContext<ModelPlaceInit>): Promise<ModelPlaceReady> {
  const report = (value: ModelReport) => place.progress(value);
  const { spec, limits, frameIntervalMs, mailboxLimit, speculation } = place.init;
  const model = await (await openEngine(place.init.engine)).load(spec, (fraction) => report(fraction));
  checkKind(spec, model.capabilities);
  const draft = speculation.draftModel && (await loadDraftModel(spec.path, speculation.draftModel, () => {}));
  const store = await openStore(place.init, model, (notice) => report({ notice }));
  const encoders = await openEncoders(spec, model);
  const loop = new StepLoop(model, {
    limits,
    frameIntervalMs,
    createSpeculation: (cost, choose) => Speculation.create({ model, draft, options: speculation, cost, choose }),
    onEvict: ({ adapter, tokens, saved }) => {
      const generation = loop.adapters.generationOf(adapter);
      if (store === null || generation === null || tokens.length < leastStoredTokens) return;
      if (store.wants(generation, tokens)) store.put(generation, tokens, model.kv.export(saved));
    },
  });
  const grammars = createGrammarHost({
    modelPath: spec.path,
    vocabSize: model.card.vocabSize,
    endOfGeneration: model.tokens.endOfGeneration,
    maxMatchers: spec.maxSequences + limits.maxQueue,
  });
  const running = loop.run();
  let isStopping = false;
  const onStop = async () => {
    isStopping = true;
    loop.stop();
    await running.catch(() => undefined);
    // The most recently used prefixes are saved first, because the deadline may be too short for all prefixes.
    while (store !== null && loop.prefixes.evictLatest()) await store.flush();
    await store?.dispose();
    await grammars.dispose();
    for (const thread of encoders?.threads ?? []) await thread.dispose();
    loop.dispose();
    model.dispose();
  };
  const preparation = new RequestPreparation({ loop, grammars, store });
  const behaviour = modelActor({ model, loop, preparation, media: encoders?.media ?? null });
  place.system.spawn<ModelProtocol>("model", { ...behaviour, onStop }, { mailboxLimit });
  // If an encoder thread ends, the worker ends too, because requests with images or audio would fail forever. The supervisor
  // restarts the model.
  for (const thread of encoders?.threads ?? []) {
    void thread.ended.then((error) => {
      if (isStopping) return;
      setImmediate(() => {
        throw error;
      });
    });
  }
  running.catch((error: unknown) => {
    if (spec.abortFlag && new Uint8Array(spec.abortFlag)[0] === 1) return; // A stop message has aborted the load.
    // Thrown in a separate callback, so that the error ends the thread or process instead of rejecting a promise.
    setImmediate(() => {
      throw error;
    });
  });
  const { card, capacity, capabilities } = model;
  return {
    card,
    capacity,
    capabilities,
    maxQueue: limits.maxQueue,
    images: spec.images ?? null,
    audio: spec.audio ?? null,
    probes: probesOf(model),
  };
}

async function openStore(
  { prefixStore, spec }: ModelPlaceInit,
  model: LoadedModel,
  onNotice: (notice: string) => void,
): Promise<PrefixStore | null> {
  if (prefixStore === null) return null;
  const fingerprint = await modelFingerprint(spec.path);
  // Stored prefixes are used only with an equal `layout`. It includes the encoder and the maximum image size, because the KV of a
  // prompt with images or audio depends on them too.
  const projector = spec.images ?? spec.audio;
  const encoder = projector ? `, images by ${await modelFingerprint(projector.path)}` : "";
  const size = spec.images ? `, at most ${spec.images.maxEdge ?? "any number of"} pixels` : "";
  return PrefixStore.open(prefixStore, { fingerprint, layout: model.kv.layout + encoder + size }, onNotice);
}

/** Starts the threads that encode images and audio; null = the model accepts only text. */
async function openEncoders(spec: ModelSpec, model: LoadedModel) {
  const images = spec.images ? await openImages(spec.images, model, spec.threads) : null;
  const audio = spec.audio ? await openAudio(spec.audio, model, spec.threads) : null;
  const limits = spec.images ?? spec.audio;
  if (!limits) return null;
  const threads = [...(images ? [images.encoder] : []), ...(audio ? [audio.encoder] : [])];
  return { threads, media: new ModelMedia({ images, audio, limits }) };
}

/** Starts the thread that encodes audio. Throws `config_invalid` if the projector does not belong to the model. */
async function openAudio({ path, maxSeconds }: AudioSpec, model: LoadedModel, threads: number) {
  const { rules, sizes } = await readAudioProjectorFile(path);
  checkLength(path, sizes.length, model);
  // Imported here, because the library that detects the types of files takes 45 ms to load.
  const { AudioThread } = await import("../../engines/audio-input/audio-thread.ts");
  const encoder = await AudioThread.start({
    ...{ path, threads: computeThreads(threads), rules, frameFloats: sizes.bands, maxSeconds },
    maxTokens: model.capacity.sequenceTokens,
  });
  return { embeddingLength: sizes.length, encoder };
}

function checkLength(path: string, length: number, { card }: LoadedModel): void {
  if (length === card.inputLength) return;
  const message = `mmproj ${path} makes embeddings of ${length} floats; the model expects ${card.inputLength}: name the mmproj file of this model`;
  throw new ServerError("config_invalid", message, { param: "mmproj" });
}

/** Starts the thread that encodes images. Throws `config_invalid` if the projector does not belong to the model. */
async function openImages(spec: ImageSpec, model: LoadedModel, threads: number) {
  const { path, maxEdge, tileTokens, attendsAhead } = spec;
  const { maxBatchTokens } = model.capacity;
  if (attendsAhead && tileTokens > maxBatchTokens) {
    const message =
      `max_num_batched_tokens is ${maxBatchTokens}; this model computes the ${tileTokens} tokens of an image in one step: ` +
      `set at least ${tileTokens}`;
    throw new ServerError("config_invalid", message, { param: "max_num_batched_tokens" });
  }
  const file = await readProjectorFile(path);
  checkLength(path, file.sizes.length, model);
  const encoder = await startImageThread({ path, threads: computeThreads(threads) });
  return { file, encoder, maxEdge };
}

function probesOf(model: LoadedModel): Int32Array[] | null {
  return model.tokenize === null ? null : vocabularyProbes.map(model.tokenize, model);
}
