// Owns what runs on a model's place (a child process or a worker thread): it loads the model, then runs the step loop
// with the model actor in front of it. Started by the kernel's entry; an engine failure ends the place on purpose, and
// its supervisor starts a new one.
import type { LoadedModel } from "../../engines/engine.ts";
import { openEngine } from "../../engines/open-engine.ts";
import { vocabularyProbes } from "../../engines/tokenizer/vocabulary.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceInit, ModelPlaceReady, ModelProtocol } from "../messages.ts";
import { StepLoop } from "../scheduler/step-loop.ts";
import { modelActor } from "./model-actor.ts";

export async function start(place: PlaceContext<ModelPlaceInit>): Promise<ModelPlaceReady> {
  const { engine, spec, limits, frameIntervalMs, mailboxLimit } = place.init;
  const model = await (await openEngine(engine)).load(spec, (fraction) => place.progress(fraction));
  const loop = new StepLoop(model, limits, frameIntervalMs);
  const running = loop.run();
  const onStop = async () => {
    loop.stop();
    await running.catch(() => undefined);
    model.dispose();
  };
  place.system.spawn<ModelProtocol>("model", { ...modelActor(loop), onStop }, { mailboxLimit });
  running.catch((error: unknown) => {
    if (spec.abortFlag && new Uint8Array(spec.abortFlag)[0] === 1) return; // aborted to stop: that message is on its way
    // Thrown outside of every promise, so that the place dies and says why.
    setImmediate(() => {
      throw error;
    });
  });
  return { card: model.card, capacity: model.capacity, maxQueue: limits.maxQueue, probes: probesOf(model) };
}

function probesOf(model: LoadedModel): Int32Array[] | null {
  return model.tokenize === null ? null : vocabularyProbes.map(model.tokenize, model);
}
