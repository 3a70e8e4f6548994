// Model place: the module of a model's worker (a child process or thread). It loads the model, then runs the step loop. An
// engine failure ends the worker on purpose, and its supervisor starts a new one.
import { createGrammarHost } from "../../engines/decoding/grammar/host.ts";
import { modelFingerprint } from "../../engines/decoding/prefix-store/fingerprint.ts";
import { PrefixStore } from "../../engines/decoding/prefix-store/prefix-store.ts";
import { Speculation } from "../../engines/decoding/speculation/speculation.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { vocabularyProbes } from "../../engines/text/tokenizer/vocabulary.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceInit, ModelPlaceReady, ModelProtocol, ModelReport } from "../messages.ts";
import { loadDraftModel } from "./draft-model.ts";
import { modelActor } from "./model-actor.ts";
import { checkKind } from "./model-kind.ts";
import { RequestPreparation } from "./request-preparation.ts";
import { StepLoop } from "./step/step-loop.ts";

/**
 * Minimum length in tokens of a prefix stored on disk. Computing a shorter prefix is faster than reading it. Chosen by hand.
 */
const leastStoredTokens = 256;

export async function start(place: PlaceContext<ModelPlaceInit>): Promise<ModelPlaceReady> {
  const report = (value: ModelReport) => place.progress(value);
  const { spec, limits, frameIntervalMs, mailboxLimit, speculation } = place.init;
  const model = await (await openEngine(place.init.engine)).load(spec, (fraction) => report(fraction));
  checkKind(spec, model.capabilities);
  const draft = speculation.draftModel && (await loadDraftModel(spec.path, speculation.draftModel, () => {}));
  const store = await openStore(place.init, model, (notice) => report({ notice }));
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
  const onStop = async () => {
    loop.stop();
    await running.catch(() => undefined);
    // The most recently used prefix is saved first, because the deadline may be too short for all prefixes.
    while (store !== null && loop.evictLatestPrefix()) await store.flush();
    await store?.dispose();
    await grammars.dispose();
    loop.dispose();
    model.dispose();
  };
  const behaviour = modelActor({ model, loop, preparation: new RequestPreparation({ loop, grammars, store }) });
  place.system.spawn<ModelProtocol>("model", { ...behaviour, onStop }, { mailboxLimit });
  running.catch((error: unknown) => {
    if (spec.abortFlag && new Uint8Array(spec.abortFlag)[0] === 1) return; // A stop message has aborted the load.
    // The error is thrown in a separate callback, so that it ends the thread or process and does not reject a promise.
    setImmediate(() => {
      throw error;
    });
  });
  const { card, capacity, capabilities } = model;
  return { card, capacity, capabilities, maxQueue: limits.maxQueue, probes: probesOf(model) };
}

async function openStore(
  { prefixStore, spec }: ModelPlaceInit,
  model: LoadedModel,
  onNotice: (notice: string) => void,
): Promise<PrefixStore | null> {
  if (prefixStore === null) return null;
  const fingerprint = await modelFingerprint(spec.path);
  return PrefixStore.open(prefixStore, { fingerprint, layout: model.kv.layout }, onNotice);
}

function probesOf(model: LoadedModel): Int32Array[] | null {
  return model.tokenize === null ? null : vocabularyProbes.map(model.tokenize, model);
}
