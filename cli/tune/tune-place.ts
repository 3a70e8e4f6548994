// Module of the child process that tunes a model. It loads both engines, so nothing else runs in it. Started by tuner.ts.
import type { TuneResult } from "../../actors/api/tuning.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { runTuning, type TuneJob } from "./tuning.ts";

export function start({ init, progress }: PlaceContext<TuneJob>): Promise<TuneResult> {
  return runTuning(init, progress);
}
