// Model thread with the real step loop and model actor, for a model without weights. Replaces actors/model/place.ts.
// The token rate is in the query of the module's URL, because the inference service passes the same options to every
// model thread.

import type { ModelPlaceInit, ModelPlaceReady, ModelProtocol } from "../../actors/messages.ts";
import { modelActor } from "../../actors/model/model-actor.ts";
import { RequestPreparation } from "../../actors/model/request-preparation.ts";
import { StepLoop } from "../../actors/model/step/step-loop.ts";
import { readModelMetadata } from "../../engines/files/gguf/metadata.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { idleCapacity } from "../idle-kv.ts";
import { PacedModel } from "./paced-model.ts";

const sequenceTokens = 65_536;

/** Returns the URL of the module that runs a model of `tokensPerSecond`. */
export function pacedModule(tokensPerSecond: number): URL {
  const module = new URL(import.meta.url);
  module.search = `?tokensPerSecond=${tokensPerSecond}`;
  return module;
}

export async function start(place: PlaceContext<ModelPlaceInit>): Promise<ModelPlaceReady> {
  const { spec, limits, frameIntervalMs, mailboxLimit } = place.init;
  const rate = Number(new URL(import.meta.url).searchParams.get("tokensPerSecond"));
  const model = new PacedModel(rate, idleCapacity(spec.maxSequences, spec.maxBatchTokens, sequenceTokens));
  const loop = new StepLoop(model, { limits, frameIntervalMs });
  const running = loop.run();
  const onStop = async () => {
    loop.stop();
    await running;
  };
  place.system.spawn<ModelProtocol>(
    "model",
    {
      ...modelActor({ model, loop, preparation: new RequestPreparation({ loop, grammars: null, store: null }) }),
      onStop,
    },
    { mailboxLimit },
  );
  const { card, capacity, capabilities } = model;
  // The model generates only a few of the file's tokens, so that sampling costs nothing. But the text workers require that the card
  // reports the size of the file's whole vocabulary.
  const { tokenizer } = await readModelMetadata(spec.path, false);
  const shown = { ...card, vocabSize: tokenizer.tokens.length };
  return { card: shown, capacity, capabilities, maxQueue: limits.maxQueue, probes: null };
}
