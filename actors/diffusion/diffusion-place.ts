// Diffusion process: the entry module of a diffusion model's child process. It loads the model and runs the calls of its actor.
// Native code runs only in this process, so a crash ends only this process.
import { openDiffusion } from "../../engines/diffusion/pipeline.ts";
import { lowerOwnPriority } from "../../runtime/host/priority.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { DiffusionPlaceInit, DiffusionProtocol, ModelPlaceReady } from "../messages.ts";
import { tokenlessReady } from "../models/tokenless-ready.ts";
import { DiffusionActor } from "./diffusion-actor.ts";

/**
 * Nice value of the process. A diffusion step keeps all its threads busy for seconds, while the threads of a text model wait for
 * each other in every step. With this value, a text model gets nine tenths of a core that both processes want.
 */
const niceness = 10;

export async function start(place: PlaceContext<DiffusionPlaceInit>): Promise<ModelPlaceReady> {
  const { spec, limits, mailboxLimit } = place.init;
  lowerOwnPriority(niceness);
  const model = await openDiffusion(spec);
  const actor = new DiffusionActor(model, limits, place.spawner);
  place.system.spawn<DiffusionProtocol>("diffusion", actor, { mailboxLimit });
  place.onStop(async () => {
    await actor.stop();
    await model.dispose();
  });
  const { card } = model;
  const { pipeline, backend, weightBytes } = card;
  return {
    ...tokenlessReady({ path: spec.path, description: pipeline, engine: "onnx", backend, weightBytes }),
    diffusion: card,
  };
}
