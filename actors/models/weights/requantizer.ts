// Requantizer: changes the quantization of a model while the model serves requests. The source of the model is converted in the
// background; then the converted model replaces the loaded one. Only one model is converted at a time.
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Requantization } from "../../api/inference.ts";
import type { Collected, ServiceOptions } from "../../front/service-options.ts";
import type { ManagedModel } from "../managed-model.ts";
import type { ModelWeights } from "../served-model.ts";

type Requantize = NonNullable<ServiceOptions["requantize"]>;

interface Change {
  readonly level: string;
  readonly collected: Collected | null;
}

/** The part of a model that this module uses. */
type Requantized = Pick<ManagedModel, "id" | "served" | "requantization" | "replaceWeights">;

export interface RequantizerOptions extends Pick<ServiceOptions, "requantize"> {
  readonly log: Pick<Logger, "info" | "error">;
}

export class Requantizer {
  readonly #options: RequantizerOptions;
  readonly #stopped = new AbortController();
  /** Id of the model whose quantization is being changed; null = no change in progress. */
  #running: string | null = null;
  #conversion: Promise<unknown> = Promise.resolve();

  constructor(options: RequantizerOptions) {
    this.#options = options;
  }

  /** Starts a change in the background. Returns the id of the model. Throws invalid_value, model_state_conflict, unsupported. */
  begin(model: Requantized, wanted: string, collected: Collected | null = null): string {
    const level = levelNamed(wanted);
    const { requantize } = this.#options;
    if (requantize === undefined) {
      throw new ServerError("unsupported", `this server cannot convert models; "${model.id}" is unchanged`);
    }
    this.#claim(model);
    void this.#run(model, { level, collected }, requantize).finally(() => {
      this.#running = null;
    });
    return model.id;
  }

  /** Reloads a model with other weights or engine settings. Throws model_state_conflict, draining, and the error of the load. */
  async reload(model: Requantized, weights: ModelWeights): Promise<void> {
    this.#claim(model);
    try {
      await model.replaceWeights(weights);
    } finally {
      this.#running = null;
    }
  }

  #claim({ id }: Requantized): void {
    if (this.#stopped.signal.aborted) throw new ServerError("draining", "the server is shutting down");
    if (this.#running !== null) {
      const message = `the quantization of model "${this.#running}" is being changed; try again when it is done (GET /v1/models)`;
      throw new ServerError("model_state_conflict", message);
    }
    this.#running = id;
  }

  /** Cancels the conversion in progress. A model that is being loaded is stopped by the model manager. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#conversion.catch(() => undefined);
  }

  async #run(model: Requantized, { level, collected }: Change, requantize: Requantize): Promise<void> {
    const { log } = this.#options;
    const { id } = model;
    const show = (status: Requantization["status"], progress: number, error: string | null = null) => {
      model.requantization = { level, status, progress, error };
    };
    const startMs = performance.now();
    const msSinceStart = () => Math.round(performance.now() - startMs);
    show("converting", 0);
    log.info({ model: id, level }, "the quantization of a model is changed");
    try {
      const { spec } = model.served;
      const onProgress = (fraction: number) => show("converting", fraction);
      const conversion = requantize({ id, spec, level, collected, signal: this.#stopped.signal, onProgress });
      this.#conversion = conversion;
      // The new weights are loaded without collecting inputs for calibration.
      const next = { ...(await conversion), collectsInputs: false };
      const convertMs = msSinceStart();
      show("loading", 1);
      if (next.path !== spec.path || spec.collectsInputs) await model.replaceWeights({ spec: next, level });
      show("done", 1);
      log.info({ model: id, level, convertMs, swapMs: msSinceStart() - convertMs }, "the quantization is changed");
    } catch (error) {
      const { code, message } = toErrorRecord(error);
      show("failed", model.requantization?.progress ?? 0, message);
      if (!this.#stopped.signal.aborted)
        log.error({ model: id, level, code, reason: message }, "the quantization of a model was not changed");
    }
  }
}

function levelNamed(wanted: string): string {
  try {
    return parseLevel(wanted, "ggml_type").name;
  } catch (cause) {
    throw new ServerError("invalid_value", toErrorRecord(cause).message, { param: "ggml_type", cause });
  }
}
