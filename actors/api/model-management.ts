// ModelManagement: the interface to load and unload models and to read their status. The transitions between the statuses
// are in docs/models.md.
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
