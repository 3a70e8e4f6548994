// Models of `troupe run`: loads them in threads and child processes of this command, and shows the progress.
import type { Inference } from "../../actors/api/inference.ts";
import { InferenceService } from "../../actors/front/inference-service.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { frontOptions, placeStopMs } from "../assembly/service-options.ts";
import type { Config } from "../config/config.ts";
import { createProgress } from "../progress.ts";
import type { DefaultsByModel } from "./conversation.ts";

export interface RunModels {
  readonly inference: Inference;
  readonly defaults: DefaultsByModel;
  /** Loads the models. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Function that opens the models. `signal`: aborted when the command must end. */
export type OpenModels = (config: Config, log: Logger, signal: AbortSignal) => Promise<RunModels>;

/** Downloads missing models; `start` then loads the models. Throws `cancelled` if the command ends during a download. */
export async function openModels(config: Config, log: Logger, signal: AbortSignal): Promise<RunModels> {
  const progress = createProgress(signal);
  const options = await frontOptions(config, log, progress);
  let isLoading = true;
  const front = new InferenceService({
    ...options,
    // No progress bar is shown when a model is reloaded during a conversation.
    onLoadProgress: (id, fraction) => isLoading && options.onLoadProgress(id, fraction),
  });
  return {
    inference: front,
    defaults: new Map(options.models.map((served) => [served.id, served.defaults])),
    async start() {
      await front.start();
      isLoading = false;
      progress.stop();
    },
    async stop() {
      progress.stop();
      await front.stop(placeStopMs);
    },
  };
}
