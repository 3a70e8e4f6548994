// ModelManagement: the interface to load and unload models and to read their status. The transitions between the statuses
// are in docs/models.md. ModelLibrary: the interface to download models while the server runs, and to remove them.
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { CalibrationControl } from "./calibration.ts";
import type { ModelStatus } from "./inference.ts";

/** Result of loading or unloading a model. */
export interface ModelOutcome {
  /** The configured id, even if the request named "default". */
  readonly id: string;
  /** The current status; `reloading` if another request is already loading the model. */
  readonly status: ModelStatus;
  /** Why the model did not reach the requested status; null: it did. */
  readonly error: ErrorRecord | null;
}

/** Every `name` is a model id or "default". All methods throw model_not_found. */
export interface ModelManagement extends CalibrationControl {
  statusOf(name: string): ModelOutcome;
  /** Number of sequences that wait for a slot of a model, as last known if the model does not answer at once. */
  waiting(name: string): Promise<number>;
  /**
   * Loads a model. A loaded model is first unloaded when its requests have ended; new requests wait until it is loaded again.
   * The load continues if the client disconnects.
   */
  reload(name: string): Promise<ModelOutcome>;
  /** Unloads a model after its requests have ended. Does nothing if it is not loaded. */
  unload(name: string): Promise<ModelOutcome>;
  /**
   * Begins to convert the weights of a model to another quantization level, such as "Q4K". The converted model then takes the place
   * of the loaded one: running requests finish first, new ones wait. Returns the id of the model. The field
   * `requantization` of the model's entry tells how it goes. Throws invalid_value for an unknown level, model_state_conflict while a model
   * of this server is converted, and unsupported if the server cannot convert.
   */
  requantize(name: string, level: string): string;
}

/** A download in progress. */
export interface Download {
  /** Name of the model, as `-m` takes it. */
  readonly model: string;
  /** What is done, for example "download acme/tiny-GGUF". */
  readonly status: string;
  readonly doneBytes: number;
  /** null: unknown. */
  readonly totalBytes: number | null;
}

export interface ModelLibrary {
  /** The downloads in progress. */
  downloads(): readonly Download[];
  /**
   * Downloads a model and adds it to those of the server, not loaded. Resolves at once if the server has it. A download in progress
   * is joined. It ends when the signals of all that wait for it are aborted; what was downloaded is kept for the next try. Throws
   * invalid_value if `name` is not a name of a model to download, queue_full, and the errors of downloads.
   */
  download(name: string, signal: AbortSignal, onProgress: (download: Download) => void): Promise<void>;
  /**
   * Removes a downloaded model after its requests have ended, and deletes its files unless another model uses them. Throws
   * model_not_found, and conflict if the model is one of the settings.
   */
  remove(name: string): Promise<void>;
}
