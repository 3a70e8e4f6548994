// ModelManagement: the interface to load and unload models and to read their status. docs/models.md describes the status
// transitions. ModelLibrary: the interface to download models while the server runs, and to remove them.
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { CalibrationControl } from "./calibration.ts";
import type { ModelStatus } from "./inference.ts";

/** Result of loading or unloading a model. */
export interface ModelOutcome {
  /** The configured id, even if the request named "default". */
  readonly id: string;
  /** The current status; `reloading` if another request is already loading the model. */
  readonly status: ModelStatus;
  /** Reason why the model did not reach the requested status; null = it did. */
  readonly error: ErrorRecord | null;
}

/** Every `name` is a model id or "default". All methods throw model_not_found. */
export interface ModelManagement extends CalibrationControl {
  statusOf(name: string): ModelOutcome;
  /** Returns the number of sequences that wait for a slot of a model; the last known number if the model does not respond at once. */
  waiting(name: string): Promise<number>;
  /**
   * Loads a model. A loaded model is unloaded first, after its running requests have ended; new requests wait until it is loaded
   * again. The load continues if the client disconnects.
   */
  reload(name: string): Promise<ModelOutcome>;
  /** Unloads a model after its requests have ended. Does nothing if the model is not loaded. */
  unload(name: string): Promise<ModelOutcome>;
  /**
   * Starts converting the weights of a model to another quantization level, such as "Q4K". The converted model then replaces the
   * loaded one: running requests finish first, new ones wait. Returns the id of the model. The field `requantization` of the
   * model's entry shows the progress. Throws invalid_value for an unknown level, model_state_conflict while a model of this
   * server is being converted, and unsupported if the server cannot convert.
   */
  requantize(name: string, level: string): string;
}

/** A download in progress. */
export interface Download {
  /** Name of the model, in the form that the option `-m` accepts. */
  readonly model: string;
  /** Current step, for example "download acme/tiny-GGUF". */
  readonly status: string;
  readonly doneBytes: number;
  /** Total size in bytes; null = unknown. */
  readonly totalBytes: number | null;
}

export interface ModelLibrary {
  /** Returns the downloads in progress. */
  downloads(): readonly Download[];
  /**
   * Downloads a model and adds it to the server's models without loading it. Resolves at once if the server already has the
   * model. Concurrent calls for the same model share one download, which ends when the signals of all callers are aborted; the
   * partial download is kept for the next try. Throws invalid_value if `name` is not the name of a downloadable model,
   * queue_full, and the errors of downloads.
   */
  download(name: string, signal: AbortSignal, onProgress: (download: Download) => void): Promise<void>;
  /**
   * Removes a downloaded model after its requests have ended, and deletes its files unless another model uses them. Throws
   * model_not_found, and conflict if the model is from the settings.
   */
  remove(name: string): Promise<void>;
}
