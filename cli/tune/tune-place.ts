// Module of the child process that tunes a model. It loads both engines, so nothing else runs in it. Started by tuner.ts.
import { rmSync } from "node:fs";
import type { TuneResult } from "../../actors/api/tuning.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { runTuning, type TuneJob } from "./tuning.ts";

export function start({ init, progress }: PlaceContext<TuneJob>): Promise<TuneResult> {
  // Remove the excerpts when this process ends. If a signal ends the spawner, the spawner cannot remove them, but this process
  // ends too.
  process.on("exit", () => removeIfPossible(init.folder));
  return runTuning(init, progress);
}

/**
 * Removes a folder. Errors are ignored, because some systems do not remove a file that is memory-mapped. tuner.ts removes the
 * folder after this process has ended.
 */
function removeIfPossible(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {}
}
