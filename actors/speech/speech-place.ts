// Speech process: the entry module of a speech model's child process. It loads the model and runs the calls of its actor. Native
// code of a speech library runs only in this process, so a crash ends only this process.
import { openSpeech } from "../../engines/speech/open-speech.ts";
import { lowerOwnPriority } from "../../runtime/host/priority.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceReady, SpeechPlaceInit, SpeechProtocol } from "../messages.ts";
import { tokenlessReady } from "../models/tokenless-ready.ts";
import { SpeechActor } from "./speech-actor.ts";

/**
 * Nice value of the process. The threads of a text model wait for each other in every step, so a speech model that competes with
 * them for a core would slow down every stream. With this value, it mostly computes in the gaps that they leave.
 */
const niceness = 15;

export async function start(place: PlaceContext<SpeechPlaceInit>): Promise<ModelPlaceReady> {
  const { spec, limits, mailboxLimit } = place.init;
  lowerOwnPriority(niceness);
  const speech = await openSpeech(spec);
  const actor = new SpeechActor(speech, limits, place.spawner);
  place.system.spawn<SpeechProtocol>("speech", actor, { mailboxLimit });
  place.onStop(async () => {
    await actor.stop();
    await speech.model.dispose();
  });
  const { card } = speech.model;
  const { engine, backend, weightBytes } = card;
  return {
    ...tokenlessReady({ path: spec.path, description: engine, engine, backend, weightBytes }),
    speech: card,
  };
}
